"""Put together what is known of one run now: registry, folder, batches, judgement, rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.reports.judging import read_judgement, warnings_of, why_behind
from tidemill.runtime.reports.overview import latest_of, output_range, param_values, true_state
from tidemill.runtime.reports.pace import seconds_left, spent_seconds
from tidemill.runtime.reports.results import Progress, RunResult, read_phase, without_folder
from tidemill.runtime.reports.waiting import Look, find_waiting

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry


def read_status(loaded: LoadedConfig, registry: Registry, run: str | None) -> RunResult:
    """One run, by default the latest; of one whose folder is gone what the registry knows.

    A pipeline stands for its latest run, unless a run has that name.
    """
    known = registry.get(latest_of(loaded, registry, run))
    record, folder = true_state(loaded.home, known), RunFolder.of(loaded.home, known.run)
    totals = registry.totals(record.run)
    if not folder.has_manifest():
        return without_folder(record, totals)
    manifest = folder.read_manifest()
    progress = Progress(manifest, totals, None)
    phase = read_phase(folder, manifest, totals)
    judged = read_judgement(folder, registry, manifest)

    def read(output: str | None, where: str | None) -> pa.Table:
        from tidemill.runtime.reports.rows import find_rows

        return find_rows(loaded, registry, record.run, output).to_arrow(where)

    return RunResult(
        run=record.run,
        name=record.name,
        pipeline=record.pipeline,
        state=record.state,
        outputs={name: sink.place for name, sink in manifest.outputs.sinks.items()},
        late=manifest.outputs.late_table,
        dead=manifest.outputs.dead_table,
        totals=totals,
        slices=progress.slices,
        slices_done=progress.slices_done,
        seconds=spent_seconds(known, folder),
        error=record.error,
        phase=phase,
        waiting=find_waiting(Look(registry, known, folder, manifest, progress, phase)),
        expectations=judged.verdicts,
        warnings=(
            *warnings_of(manifest, totals, judged.causes),
            *(why_behind(loaded, manifest) if totals.clock else ()),
        ),
        params=param_values(manifest),
        range=output_range(manifest),
        upgrading=read_control(folder.path).upgrading,
        left=seconds_left(progress, folder),
        read=read,
    )

"""The runs of a project at a glance: what each one read, wrote and took. Needs no run's folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tidemill.errors import RequestError, RunError, nearest
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held
from tidemill.runfolder.offset_log import is_between_batches
from tidemill.runtime.registry import RunRecord, RunState, RunTotals
from tidemill.runtime.reports.pace import spent_seconds
from tidemill.runtime.reports.results import range_json, rows_json
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import BEGINNING, FOREVER, TimeRange

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import Registry

_RECORD = tuple(each.name for each in fields(RunRecord))


@dataclass(frozen=True)
class RunSummary(RunRecord):
    """One run of a list of runs. What the run's folder knows is empty if the folder is gone."""

    totals: RunTotals = field(default_factory=RunTotals)
    range: TimeRange | None = None  # of the output
    outputs: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``runs --json`` prints it."""
        record = {name: getattr(self, name) for name in _RECORD}
        return {
            **record,
            "seconds": round(self.seconds, 3),
            "range": range_json(self.range),
            "tables": {"outputs": self.outputs},
            "rows": rows_json(self.totals),
            "params": self.params,
        }


def list_runs(
    loaded: LoadedConfig,
    registry: Registry,
    pipeline: str | None = None,
    state: str | None = None,
    last: int | None = None,
) -> list[RunSummary]:
    """The newest runs of a pipeline that are in a state, oldest first; by default all runs."""
    found = registry.runs()
    if pipeline is not None:
        known = {*loaded.config.pipelines, *(each.pipeline for each in found)}
        if pipeline not in known:
            raise RequestError(f"there is no pipeline {pipeline!r}", fix=nearest(pipeline, known))
        found = [each for each in found if each.pipeline == pipeline]
    if state is not None:
        if state not in list(RunState):
            raise RequestError(f"no run is ever {state!r}", fix=nearest(state, map(str, RunState)))
        found = [each for each in found if true_state(loaded.home, each).state == state]
    chosen = found if last is None else found[max(0, len(found) - last) :]
    return [_summarise(loaded.home, registry, each) for each in chosen]


def latest_run(registry: Registry) -> str:
    """The id of the run that was made last."""
    found = registry.runs()
    if not found:
        raise RunError("there are no runs yet", fix="'tidemill backfill' starts one")
    return found[-1].run


def latest_of(loaded: LoadedConfig, registry: Registry, name: str | None) -> str:
    """The run that a word means: a run's id or name, else a pipeline's latest; None: the latest."""
    if name is None:
        return latest_run(registry)
    found = registry.runs()
    if name in loaded.config.pipelines and not any(name in (r.run, r.name) for r in found):
        runs = [record.run for record in found if record.pipeline == name]
        return runs[-1] if runs else name
    return name


def true_state(home: Path, record: RunRecord) -> RunRecord:
    """The record of a run with its true state: a killed driver tells no registry."""
    if record.state is not RunState.RUNNING:
        return record
    folder = RunFolder.of(home, record.run)
    if is_held(folder.path):
        if not read_control(folder.path).paused:
            return record
        is_idle = is_between_batches(folder.checkpoint)
        return replace(record, state=RunState.PAUSED if is_idle else RunState.PAUSING)
    why = "its driver died; resume it" if folder.has_manifest() else "its folder is gone"
    return replace(record, state=RunState.FAILED, error=why)


def _summarise(home: Path, registry: Registry, record: RunRecord) -> RunSummary:
    manifest = find_manifest(home, record.run)
    told = asdict(true_state(home, record))
    told["seconds"] = spent_seconds(record, RunFolder.of(home, record.run))
    totals = registry.totals(record.run)
    if manifest is None:
        return RunSummary(**told, totals=totals)
    return RunSummary(
        **told,
        totals=totals,
        range=output_range(manifest),
        outputs={name: sink.place for name, sink in manifest.outputs.sinks.items()},
        params=param_values(manifest),
    )


def output_range(manifest: Manifest) -> TimeRange | None:
    """The range that a run was asked for; None: neither its start nor its end was given."""
    found = manifest.times.range
    return None if found.start <= BEGINNING and found.end >= FOREVER else found


def param_values(manifest: Manifest) -> dict[str, Any]:
    """The values of a run's parameters, as JSON has them."""
    return {name: pin.value for name, pin in manifest.code.params.items()}

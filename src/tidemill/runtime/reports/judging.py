"""Judge the expectations of a run: at the end of a backfill, hour by hour in a live run.

The judgement of a backfill is a file of the run, written before the run counts as finished: a
driver that dies in between judges again. The verdicts of a live run follow from the counts of its
batches, and are made anew whenever somebody asks; those over its rows are kept (`rowwatch.py`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.config.pins import Check
from tidemill.config.sink import SINKS
from tidemill.connectors.logs.contract import open_log
from tidemill.errors import TidemillError
from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.judging.expectations import (
    COUNTED,
    RowCounts,
    Verdict,
    Violations,
    judge,
    show_share,
)
from tidemill.planning.judging.hourly import HOUR, hours_of, judge_hours
from tidemill.planning.judging.late_causes import MOSTLY
from tidemill.runfolder.folder import JUDGEMENT
from tidemill.runtime.reports.rowwatch import RowWatch, not_judged, row_verdicts
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder
    from tidemill.runtime.registry import BatchRecord, Registry, RunTotals

_LOG = logging.getLogger(__name__)
_SOME = 0.05
"""Late rows are worth a look if they are more than this part of all rows."""


@dataclass(frozen=True)
class Judgement(JsonValue):
    """What became of a run's expectations, and why its rows are late, if most of them are."""

    verdicts: tuple[Verdict, ...] = ()
    causes: tuple[str, ...] = ()


def judge_end(
    loaded: LoadedConfig, folder: RunFolder, registry: Registry, manifest: Manifest
) -> None:
    """Judge a run whose driver has brought it to its end, or has stopped it, and keep the result.

    Safe to repeat. Reads tables only for expectations about rows, and if most rows are late.
    """
    verdicts: tuple[Verdict, ...] = ()
    totals = registry.totals(manifest.run)
    if manifest.times.ends and manifest.expect:
        verdicts = _judge_rows(loaded, folder, manifest, totals)
    made = Judgement(verdicts, _find_causes(loaded, registry, manifest.run, totals))
    if made != Judgement():
        (folder.files / JUDGEMENT).write(dump_json(made, indent=1))


def read_judgement(folder: RunFolder, registry: Registry, manifest: Manifest) -> Judgement:
    """The judgement of a run as of now."""
    try:
        kept = load_json(Judgement, (folder.files / JUDGEMENT).read_text())
    except (FileNotFoundError, ValueError):
        kept = Judgement()
    if manifest.times.ends or not manifest.expect:
        return kept
    found = {each.check: each for each in _judge_live(registry, manifest)}
    found.update(row_verdicts(folder, manifest))
    return Judgement(tuple(found[check] for check in manifest.expect), kept.causes)


def warnings_of(manifest: Manifest, totals: RunTotals, causes: tuple[str, ...]) -> tuple[str, ...]:
    """What must not go unseen in the counts of a run, with or without expectations."""
    found = list(_unread(manifest))
    for name, rows in (("late", totals.late), ("dead", totals.dead + totals.failed)):
        if rows > MOSTLY * totals.read or (name == "late" and causes):
            table = manifest.outputs.late_table if name == "late" else manifest.outputs.dead_table
            told = f"; the table {table} says why of each"
            if name == "late":
                told = "".join(f"; {cause}" for cause in causes) or (
                    f"; 'tidemill late {manifest.run}' says by how much"
                )
            share = show_share(rows, totals.read)
            found.append(f"{share} of the rows read are {name} ({rows:,} of {totals.read:,}){told}")
    return tuple(found)


def _unread(manifest: Manifest) -> Iterator[str]:
    """A range whose input had not happened yet when the run was planned."""
    needed, read = manifest.needed_input, manifest.read_input
    if needed is not None and read is not None and read < needed:
        yield (
            f"the run had input until {show_instant(from_micros(read))} only, and its range needs "
            f"input until {show_instant(from_micros(needed))}: rows after "
            f"{show_instant(from_micros(manifest.complete_output[1]))} are not complete; run the "
            "backfill again when that time is over"
        )


class HourWatch:
    """Logs the expectations of a live run that are broken, hour by hour; it goes on all the same.

    It is called with every batch, and hands it on.
    """

    def __init__(
        self,
        loaded: LoadedConfig,
        folder: RunFolder,
        registry: Registry,
        on_batch: Callable[[BatchRecord], None],
    ) -> None:
        """For the run in this folder."""
        self._registry, self._manifest = registry, folder.read_manifest()
        self._is_on = bool(self._manifest.expect) and not self._manifest.times.ends
        self._rows = RowWatch(loaded, folder, self._manifest) if self._is_on else None
        self._hour: int | None = None
        self._on_batch = on_batch

    def __call__(self, batch: BatchRecord) -> None:
        """After a batch."""
        if self._rows is not None:
            before, self._hour = self._hour, batch.frontier // HOUR
            if before not in (None, self._hour):
                for verdict in _judge_live(self._registry, self._manifest, last=1):
                    if verdict.is_kept is False:
                        _LOG.error("expectation broken: %s: %s", verdict.check, verdict.found)
            self._rows.look(batch.frontier)
        self._on_batch(batch)

    def end(self) -> None:
        """When the run has stopped: judge the rows that it has written."""
        if self._rows is not None:
            self._rows.end()


def _judge_rows(
    loaded: LoadedConfig, folder: RunFolder, manifest: Manifest, totals: RunTotals
) -> tuple[Verdict, ...]:
    from tidemill.connectors.sinks.contract import SinkRun, open_sinks
    from tidemill.iceberg.catalog import open_catalog
    from tidemill.runtime.reports.violations import find_violations

    without = not_judged(manifest)
    sinks = open_sinks(SinkRun(loaded, open_catalog(loaded), manifest, folder.path))
    rows = dict.fromkeys(sinks, totals.out)  # right if there is one output
    violations: dict[Check, Violations] = {}
    for name, pin in manifest.outputs.sinks.items():
        asked = [each for each in manifest.expect if each.output == name]
        if not SINKS.find(pin.kind).is_readable or not asked:
            continue
        checks = [each for each in asked if each.about not in COUNTED]
        rows[name], found = find_violations(sinks[name], pin, checks, manifest.kept, folder.path)
        violations.update(found)
    counts = RowCounts(totals.read, totals.late, totals.dead + totals.failed, rows)
    return judge(manifest.expect, counts, violations, without)


def _judge_live(registry: Registry, manifest: Manifest, last: int = 0) -> tuple[Verdict, ...]:
    """The verdicts over all hours that are known, or over the last ones; none that needs rows."""
    outputs = manifest.outputs.sinks
    found = registry.hours(manifest.run, HOUR, next(iter(outputs)))
    hours = hours_of(found, manifest.times.boundaries[0])[-last:]
    without = not_judged(manifest)
    checks = [each for each in manifest.expect if each.about in COUNTED or each in without]
    return judge_hours(checks, hours, without)


def _find_causes(
    loaded: LoadedConfig, registry: Registry, run: str, totals: RunTotals
) -> tuple[str, ...]:
    """Why rows are late, for each source with many of them, if most are.

    If fewer are, only for a source whose late rows are shifted by a zone: the rows of other sources
    may be the most.
    """
    is_most = totals.late > MOSTLY * totals.read
    if totals.late <= _SOME * totals.read:
        return ()
    from tidemill.runtime.reports.late import read_late

    with contextlib.suppress(TidemillError, OSError):  # it is advice: a run does not fail by it
        report = read_late(loaded, registry, run)
        by_rows = sorted(report.sources, key=lambda source: -source.rows)
        return tuple(
            each.cause
            for each in by_rows
            if each.rows > _SOME * report.late and (is_most or each.is_shifted)
        )
    return ()


def why_behind(loaded: LoadedConfig, manifest: Manifest) -> tuple[str, ...]:
    """Why rows of a run came behind the clock, as their logs tell now, each with what to do."""
    with contextlib.suppress(
        TidemillError, OSError
    ):  # the YAML may have changed, a catalog may be away
        return tuple(
            text
            for name, pin in manifest.sources.items()
            if pin.live is not None
            for text in open_log(loaded, pin).why_behind(name)
        )
    return ()

"""Judge the rows of a live run while it runs, in a thread beside its batches.

Rows are read back from the output, by hours of their time, once the watermark has passed an hour so
far that no row of it comes any more; no batch waits for it. What was judged is kept in a file of
the run. A driver that dies in between loses the reading of the last hours, and the next driver
reads them again, with the same result: complete hours do not change.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.config.sink import SINKS
from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.judging.expectations import COUNTED, Reading, Verdict, judge_rows, unjudged
from tidemill.planning.judging.tallies import (
    JudgedRows,
    Tally,
    complete_until,
    first_hour,
    told_span,
)
from tidemill.runfolder.folder import JUDGED_ROWS
from tidemill.types import FOREVER_MICROS

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pins import Check
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder

_LOG = logging.getLogger(__name__)
_REST = 10
"""It rests so many times as long as it read: hours of history go by faster than they are read."""
_RETRY = 60.0
"""Seconds to the next try after the rows could not be read."""


@dataclass(frozen=True)
class _Kept(JsonValue):
    """The content of the file: what was judged, by output."""

    outputs: dict[str, JudgedRows]


class RowWatch:
    """Holds the rows of a live run to its expectations, as far as they are complete."""

    def __init__(self, loaded: LoadedConfig, folder: RunFolder, manifest: Manifest) -> None:
        """Nothing but the file is read yet."""
        self._loaded, self._folder, self._manifest = loaded, folder, manifest
        self._checks = row_checks(manifest)
        self._judged = _read(folder, manifest)
        self._before: int | None = None
        self._thread: threading.Thread | None = None
        self._not_before = 0.0

    def look(self, frontier: int) -> None:
        """After a batch: begin to judge the hours that are complete by now. Returns at once."""
        before, self._before = self._before, frontier
        if not self._checks or before is None or time.monotonic() < self._not_before:
            return
        due = self._due(before)
        if due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._go_on, args=(due,), daemon=True)
            self._thread.start()

    def end(self) -> None:
        """When the run has stopped: judge the complete hours, then all rows after them.

        More rows may come there when the run goes on, but a broken expectation stays broken.
        """
        if self._thread is not None:
            self._thread.join()
        if self._checks:
            self._go_on({} if self._before is None else self._due(self._before), is_end=True)

    def _due(self, frontier: int) -> dict[str, int]:
        """The end of the complete hours of each output that has hours to be judged."""
        ends = {name: complete_until(self._manifest, name, frontier) for name in self._checks}
        return {name: end for name, end in ends.items() if end > self._judged[name].until}

    def _go_on(self, due: dict[str, int], is_end: bool = False) -> None:
        began = time.monotonic()
        try:
            for name, until in due.items():
                verdicts = self._judge(name, (self._judged[name].until, until))
                self._judged[name] = self._judged[name].plus(until, verdicts)
                for verdict in verdicts:
                    if verdict.is_kept is False:
                        _LOG.error("expectation broken: %s: %s", verdict.check, verdict.found)
            for name, found in self._judged.items() if is_end else ():
                rest = self._judge(name, (found.until, FOREVER_MICROS))
                self._judged[name] = JudgedRows(found.until, found.tallies, rest)
            (self._folder.files / JUDGED_ROWS).write(dump_json(_Kept(self._judged), indent=1))
        except Exception as error:  # whatever a catalog or a database may raise: the run goes on
            self._not_before = time.monotonic() + _RETRY
            _LOG.warning(
                "expectations: rows cannot be read now, and are judged later: %s",
                self._loaded.redact(str(error)),
            )
        else:
            self._not_before = time.monotonic() + _REST * (time.monotonic() - began)

    def _judge(self, output: str, span: tuple[int, int]) -> tuple[Verdict, ...]:
        from tidemill.connectors.sinks.contract import SinkRun, open_sinks
        from tidemill.iceberg.catalog import open_catalog
        from tidemill.runtime.reports.violations import find_violations

        pin, checks = self._manifest.outputs.sinks[output], self._checks[output]
        run = SinkRun(self._loaded, open_catalog(self._loaded), self._manifest, self._folder.path)
        _, found = find_violations(open_sinks(run)[output], pin, checks, span, self._folder.path)
        return tuple(told_span(judge_rows(check, found[check]), span) for check in checks)


def row_verdicts(folder: RunFolder, manifest: Manifest) -> dict[Check, Verdict]:
    """The verdicts over the rows of a live run, as they are kept."""
    checks, judged = row_checks(manifest), _read(folder, manifest)
    return {
        check: verdict
        for name, found in judged.items()
        for check, verdict in found.verdicts(checks[name]).items()
    }


def row_checks(manifest: Manifest) -> dict[str, tuple[Check, ...]]:
    """The checks about each row that a live run judges, by output."""
    without = not_judged(manifest)
    found: dict[str, tuple[Check, ...]] = {}
    for check in manifest.expect:
        if check.about not in COUNTED and check not in without:
            found[check.output] = (*found.get(check.output, ()), check)
    return found


def not_judged(manifest: Manifest) -> dict[Check, str]:
    """The checks of a run that nobody judges, with the reason."""
    times = manifest.times
    outputs = {
        name: Reading(
            SINKS.find(pin.kind).is_readable, pin.time is not None, name in times.needs.settles
        )
        for name, pin in manifest.outputs.sinks.items()
    }
    return unjudged(manifest.expect, times.ends, outputs)


def _read(folder: RunFolder, manifest: Manifest) -> dict[str, JudgedRows]:
    """What is kept. Without the file, or with a damaged one, everything is judged once more."""
    checks = row_checks(manifest)
    kept: dict[str, JudgedRows] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        kept = load_json(_Kept, (folder.files / JUDGED_ROWS).read_text()).outputs
    if kept.keys() == checks.keys():
        return kept
    return {
        name: JudgedRows(first_hour(manifest, name), (Tally(),) * len(found))
        for name, found in checks.items()
    }

"""The cohorts of a live run while it runs: children are driven, met, and united with it."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import RunError
from tidemill.planning.meeting import Pace, patience, rest
from tidemill.runfolder.cohorts import Cohort, Cohorts, Ending, Meeting, Outcome
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.journal import read_repeats
from tidemill.runfolder.offset_log import last_batch, latest_entry, read_batch
from tidemill.runtime.driving.children import Children
from tidemill.runtime.driving.gathering import Gathering, fit
from tidemill.runtime.driving.meeting import OneRun, Pair
from tidemill.runtime.registry import OVER, RunState
from tidemill.types import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill.runtime.driving.frames import Work
    from tidemill.runtime.registry import Registry

_LOG = logging.getLogger(__name__)
_POLL = 0.02
_EVERY = 0.5


class CohortWatch:
    """What the driver of a live run does for its cohorts.

    Spark calls :meth:`look` at the end of each batch and begins the next one when it returns.
    There, and before Spark starts (:meth:`begin`), a meeting is set and two runs are united: no
    source decides a slice then, and the number of the next batch is known. :meth:`tick` is called
    by the driver's own thread: it only drives children, and gives up a meeting that is waited for
    too long.
    """

    def __init__(self, work: Work, registry: Registry, is_leaving: Callable[[], bool]) -> None:
        self.work, self.registry, self.is_leaving = work, registry, is_leaving
        self.folder, self.manifest = work.folder, work.manifest
        self.cohorts = Cohorts(self.folder.path)
        self.live = OneRun(self.folder, self.manifest)
        self.children = Children(work.loaded, self.manifest.run, registry)
        pin = work.manifest.instances
        self.gathering = None if pin is None else Gathering(work, registry, pin)
        self._lock = threading.Lock()
        self._settled: set[int] = set()  # united, with all that follows for this run
        self._closed: set[int] = set()  # and the child has ended, too
        self._since: float | None = None  # live rows wait since then
        self._rests = 0.0
        self._ticked = 0.0

    def begin(self) -> None:
        """Before Spark starts: finish what a driver that died has decided and not done."""
        with self._lock:
            self._settle()
            batch = self.live.committed()
            if batch is None or self._has_begun(batch + 1):
                return
            meeting = self.cohorts.open_meeting()
            if meeting is not None and self.live.is_at(batch, meeting.frontier):
                # No batch follows without an outcome, and so nobody would call `look`.
                self._conclude(meeting, batch)

    def look(self, batch: int) -> None:
        """After a batch is committed, and before the next one begins."""
        if self._has_begun(batch + 1):
            return
        meeting = self.cohorts.open_meeting()
        if meeting is not None and self.live.is_at(batch, meeting.frontier):
            self._wait(meeting, batch)
        elif meeting is None and time.monotonic() >= self._rests:
            with self._lock:
                self._set_meeting(batch)
        if self.gathering is not None:
            self.gathering.look(batch)

    def tick(self) -> None:
        """Drive children; give up a meeting for which a source has waited too long."""
        now = time.monotonic()
        if now - self._ticked < _EVERY or self.is_leaving():
            return
        self._ticked = now
        with self._lock:
            for cohort in self.open_cohorts():
                if self.children.state(cohort) in OVER:
                    self._end(cohort)
                else:
                    self.children.drive(cohort)
            self._closed |= {
                cohort.number
                for cohort in self.cohorts.cohorts()
                if cohort.number in self._settled - self._closed and self.children.close(cohort)
            }
            meeting = self.cohorts.open_meeting()
            if meeting is not None:
                self._look_at_waiting(meeting, now)

    def end(self, state: RunState) -> None:
        """The live run ends, for now or for good, and so do its children."""
        if state not in (RunState.STOPPED, RunState.CANCELLED):
            return
        for cohort in self.open_cohorts():
            order = "cancelled" if state is RunState.CANCELLED else "stopping"
            self.children.order(cohort, **{order: True})

    def open_cohorts(self) -> list[Cohort]:
        """The cohorts whose children have something left to do."""
        return [each for each in self.cohorts.cohorts() if not self.cohorts.is_over(each.number)]

    def _has_begun(self, batch: int) -> bool:
        """Whether a batch ran before the run was rewound: what it began with is decided already."""
        return (
            batch in read_repeats(self.folder.path) or last_batch(self.folder.checkpoint) >= batch
        )

    # Meetings

    def _pair(self, cohort: Cohort) -> Pair | None:
        """The two runs; None: the child is not written down yet."""
        folder = self.children.folder(cohort)
        if not folder.path.exists() or not folder.has_manifest():
            return None
        return Pair(self.live, OneRun(folder, folder.read_manifest()), cohort)

    def _find(self, number: int) -> Cohort:
        (found,) = (each for each in self.cohorts.cohorts() if each.number == number)
        return found

    def _set_meeting(self, batch: int) -> None:
        for cohort in self.open_cohorts():
            pair = self._pair(cohort)
            if pair is None or self.children.state(cohort) in OVER:
                continue
            meeting = pair.set_meeting(batch, self._pace(cohort, batch))
            if meeting is not None:
                self._since = None
                return

    def _pace(self, cohort: Cohort, batch: int) -> Pace:
        pins = [pin.live for pin in self.manifest.sources.values() if pin.live is not None]
        trigger = max((pin.trigger for pin in pins), default=SECOND)
        now, before = (read_batch(self.folder.checkpoint, n) for n in (batch, batch - 1))
        widths = [0]
        if now is not None and before is not None:
            old = before.slowest()
            widths += [at - old[name] for name, at in now.slowest().items() if name in old]
        return Pace(trigger, max(widths), round(self.registry.last_seconds(cohort.child) * SECOND))

    def _wait(self, meeting: Meeting, batch: int) -> None:
        """Wait for the child at the frontier, but no longer than patience lasts."""
        since = time.monotonic() if self._since is None else self._since
        longest = patience(self._pace(self._find(meeting.cohort), batch)) / SECOND
        while not self.is_leaving():
            is_late = time.monotonic() - since >= longest
            with self._lock:
                if self._conclude(meeting, batch, give_up=is_late):
                    return
            time.sleep(_POLL)

    def _conclude(self, meeting: Meeting, batch: int, *, give_up: bool = True) -> bool:
        """Unite if the child is there; else postpone the meeting, if it is given up."""
        if self.cohorts.outcome(meeting.number) is None:
            pair = self._pair(self._find(meeting.cohort))
            outcome = None if pair is None else pair.unite(meeting, batch)
            if outcome is None and not give_up:
                return False
            if outcome is None or outcome.batch is None:
                self._postpone(meeting)
        self._since = None
        self._settle()
        return True

    def _postpone(self, meeting: Meeting) -> None:
        self.cohorts.conclude(Outcome(meeting.number))
        failed = 0
        for each in reversed(self.cohorts.meetings_of(meeting.cohort)):
            found = self.cohorts.outcome(each.number)
            failed += found is not None and found.batch is None
        pace = Pace(SECOND, 0, round(self.registry.last_seconds(self._find(meeting.cohort).child)
                                     * SECOND))  # fmt: skip
        pause = rest(failed, patience(pace)) / SECOND
        self._rests, self._since = time.monotonic() + pause, None
        _LOG.info("meeting %d is postponed; the next one in %.0f s or later", meeting.number, pause)

    def _look_at_waiting(self, meeting: Meeting, now: float) -> None:
        """Of several sources one may wait at the frontier for another, which does not come."""
        entry = latest_entry(self.folder.checkpoint)
        reached = [] if entry is None else [at for f in entry.frontiers.values() for at in f]
        if max(reached, default=0) < meeting.frontier or min(reached) >= meeting.frontier:
            return  # nobody waits yet, or `look` does
        self._since = now if self._since is None else self._since
        cohort = self._find(meeting.cohort)
        longest = patience(self._pace(cohort, last_batch(self.folder.checkpoint))) / SECOND
        if now - self._since >= longest:
            self._postpone(meeting)

    # What follows from decisions

    def _settle(self) -> None:
        """Do what follows from every union, if it is not done."""
        for cohort in self.cohorts.cohorts():
            outcome = self.cohorts.union_of(cohort.number)
            if outcome is None or outcome.batch is None or cohort.number in self._settled:
                continue
            pair = self._pair(cohort)
            if pair is not None:
                pair.union(outcome)
            elif self.cohorts.union(outcome.batch) is None:
                raise self._lost(cohort, outcome.batch)
            self._join(cohort, outcome.batch)
            self._settled.add(cohort.number)
            _LOG.info("cohort %d is united from batch %d on", cohort.number, outcome.batch)

    def _lost(self, cohort: Cohort, batch: int) -> RunError:
        return RunError(
            f"batch {batch} begins with the state of {cohort.child}, which has lost its folder",
            where=str(self.children.folder(cohort).path),
            fix=f"restore it from a copy, then 'tidemill resume {self.manifest.run}'; nothing was "
            "written",
        )

    def _join(self, cohort: Cohort, batch: int) -> None:
        """From a batch on the live run sees the instances of the cohort itself."""
        versions = DecidedVersions(self.folder.path, cohort.argument)
        if any(start >= batch for start in versions.starts()):
            return  # it was done, or what was decided later has them
        newest = versions.newest()
        added = versions.rows(replace(newest, digest=cohort.rows))
        rows = versions.rows(newest)
        rows = pa.concat_tables([rows, fit(added, rows.schema)]).combine_chunks()
        versions.decide(batch, versions.keep(rows, newest.pin, time.time_ns() // 1_000))

    def _end(self, cohort: Cohort) -> None:
        """A child is over without a union: it was through, or somebody has cancelled it."""
        is_through = self.children.state(cohort) is RunState.FINISHED
        self.cohorts.end(Ending(cohort.number, is_through, "" if is_through else "cancelled"))

"""The loop that drives a run: start the query, watch it, throttle it, end it."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import RunError, TidemillError, find_error
from tidemill.planning.commands import start_again
from tidemill.planning.manifest import Manifest
from tidemill.planning.requests import Goal
from tidemill.runfolder.control import Control, read_control, update_control
from tidemill.runfolder.folder import SPARK_LOG, RunFolder
from tidemill.runfolder.lag import read_lag
from tidemill.runfolder.offset_log import committed_entry, latest_entry
from tidemill.runfolder.retrying import BrokenOffError, broken_off
from tidemill.runtime.driving.childwatch import ChildWatch
from tidemill.runtime.driving.cohortwatch import CohortWatch
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.driving.growth import GrowthWatch
from tidemill.runtime.driving.logwatch import LogWatch
from tidemill.runtime.driving.pacing import StepWatch, Throttle
from tidemill.runtime.driving.readwatch import ReadWatch
from tidemill.runtime.driving.rewind import prepare_start
from tidemill.runtime.driving.seam import SeamWatch
from tidemill.runtime.driving.tablewatch import TableWatch
from tidemill.runtime.driving.watchdog import Patience, Step, Watchdog, WorkMeter
from tidemill.runtime.driving.yielding import YieldWatch
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.spark.session import is_done_within
from tidemill.runtime.spark.user_errors import find_user_error
from tidemill.storage.location import Location
from tidemill.types import FOREVER_MICROS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_TICK = 0.1
_ENDING = 30.0
"""Seconds for a query to end whose run has failed."""
_PYTHON = re.compile(r"^(?!java|org\.|py4j|Caused)[\w.]*(?:Error|Exception|Exit)\b.*")
_JAVA = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Error|Exception): .+")


@dataclass
class Driver:
    """Drives one query to its planned end, or to a clean stop.

    A clean stop lets the running batch finish: sources are told that nothing more is released,
    then the idle query is stopped. ``query.stop()`` alone would interrupt the batch; that is done
    to a batch that does not come to its end. ``end_jvm`` is for a query that does not even then.
    """

    manifest: Manifest
    folder: RunFolder
    registry: Registry
    committer: Committer
    on_batch: Callable[[BatchRecord], None]
    goal: Goal
    seam: SeamWatch | None = None
    logs: LogWatch | None = None
    growth: GrowthWatch | None = None
    tables: TableWatch | None = None
    cohorts: CohortWatch | None = None
    child: ChildWatch | None = None
    yielding: YieldWatch | None = None
    reading: ReadWatch | None = None
    end_jvm: Callable[[], None] = lambda: None
    patience: Patience = field(default_factory=Patience)
    base: Path = Path("/nowhere")  # the project's folder, in which the user's code is

    def __post_init__(self) -> None:
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._idle = threading.Event()
        self._stopping = threading.Event()
        self._grown = threading.Event()
        self._interrupted = threading.Event()
        self._why_interrupted: BaseException | None = None
        self._is_overdue = False
        self._tasks: Hashable = None
        self._answers = 0
        done = committed_entry(self.folder.checkpoint)
        self._frontier = min(done.slowest().values()) if done else self.manifest.times.frontiers[0]

    def run(self, frame: DataFrame) -> RunState:
        """Run the query; returns how it ended. Raises what made it fail."""
        prepare_start(self.folder, self.manifest)
        if self.cohorts is not None:
            self.cohorts.begin()
        self._steps = StepWatch(self.folder, self.manifest)
        self._began, self._clock = time.monotonic(), time.time_ns() // 1_000
        self._context = frame.sparkSession.sparkContext
        self._throttle = Throttle(self.folder, self.manifest)
        self._throttle.look()
        query = (
            frame.writeStream.foreachBatch(self._handle)
            .option("checkpointLocation", str(self.folder.checkpoint))
            .trigger(processingTime="0 seconds")
            .outputMode("append")
            .start()
        )
        meter = WorkMeter((os.getpid(), self._context._gateway.proc.pid))
        with Watchdog(
            self._is_told_to_end,
            lambda: (self._tasks, self._answers, meter.look()),
            self._is_away,
            lambda step: self._hurry(query, step),
            self.patience,
        ):
            try:
                state = self._watch(query)
                self._look_for_growth()
                if self.cohorts is not None:
                    self.cohorts.end(state)
            except Exception as error:
                raise self._why(error) from error
            finally:
                self._end(query)
        if state is RunState.FINISHED:
            with suppress(OSError):
                Location(self.folder.side).remove_folder()
        return state

    @property
    def is_leaving(self) -> bool:
        """Whether the run is told to end: then nobody waits for another run."""
        return self._is_told_to_end()

    def stop(self) -> None:
        """Ask for a clean stop, from a signal handler or another thread."""
        self._stopping.set()

    def _handle(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark in a thread of its own, which must answer: the JVM waits for it.

        py4j answers with an ``Exception``. Anything else, such as ``SystemExit``, would end the
        thread without an answer.
        """
        try:
            self._take(frame, batch)
        except BaseException as error:
            self._failure = self._failure or error
            if isinstance(error, Exception):
                raise
            raise RunError(f"batch {batch} was broken off: {error!r}") from error
        finally:
            self._answers += 1

    def _take(self, frame: DataFrame, batch: int) -> None:
        record = self.committer.commit(frame, batch)
        self.registry.record_batch(self.manifest.run, record)
        self._throttle.count(batch, record.on_time + record.late + record.dead)
        self._frontier = record.frontier
        try:
            self.on_batch(record)
        except TidemillError:
            raise
        except BaseException as error:
            raise RunError(
                f"on_progress failed after batch {batch}: {type(error).__name__}: {error}",
                fix=f"correct it, then 'tidemill resume {self.manifest.run}'",
            ) from error
        for watch in (self.tables, self.cohorts):
            if watch is not None:
                look, run = partial(watch.look, batch), self.folder.path
                self.committer.breaker.run(look, partial(broken_off, run))
        if record.frontier >= FOREVER_MICROS:
            self._ended.set()

    def _watch(self, query: StreamingQuery) -> RunState:
        waiter: threading.Thread | None = None
        while True:
            self._await(query)
            control = read_control(self.folder.path)
            self._look_at_others()
            self._throttle.look()
            self._steps.look(query)
            if self.logs is not None:
                self.logs.look()
            if self.reading is not None:
                self.reading.look(self._frontier)
            if control.stopping or self._is_reached():
                self.stop()
            self._look_for_growth()
            leaving = self._ended.is_set() or self._is_told_to_end()
            if self.seam is not None and not leaving:
                self.seam.look()
            self._hold(control)
            if leaving and waiter is None:
                waiter = threading.Thread(target=self._until_idle, args=(query,), daemon=True)
                waiter.start()
            if leaving:
                self._tasks = _tasks_done(self._context)
            if self._is_overdue:
                raise self._overdue()
            ended = RunState.CANCELLED if control.cancelled else RunState.STOPPED
            if self._interrupted.is_set() and not query.isActive:
                if self._why_interrupted is not None:
                    raise self._explain(self._why_interrupted)
                return ended
            if self._idle.is_set():
                return RunState.FINISHED if self._ended.is_set() else ended

    def _look_at_others(self) -> None:
        """Look at the runs that this one catches up for, gives way to, or has as children."""
        if self.child is not None and self.child.is_over():
            self._ended.set()
        elif self.child is not None and self.child.is_in_vain():
            update_control(self.folder.path, cancelled=True)
        if self.yielding is not None:
            is_awaited = self.child is not None and self.child.is_meeting
            (self.yielding.let_go if is_awaited else self.yielding.look)()
        if self.cohorts is not None:
            self.cohorts.tick()

    def _look_for_growth(self) -> None:
        if self.growth is not None and self.growth.look(self._answers):
            self._grown.set()

    def _hold(self, control: Control) -> None:
        """Let sources read nothing more, and say whether another run is to go on.

        It is not if somebody wants this one to stop.
        """
        stopping = self._stopping.is_set()
        grown = self._grown.is_set() and not stopping
        over = self.child is not None and self._ended.is_set()
        if (stopping or grown or over) and (control.paused, control.grown) != (True, grown):
            update_control(self.folder.path, paused=True, grown=grown)

    def _is_reached(self) -> bool:
        goal = self.goal
        if goal.seconds is not None and time.monotonic() - self._began >= goal.seconds:
            return True
        if goal.frontier is None:
            return False
        is_reached = self._frontier >= goal.frontier
        return is_reached or is_past(self.folder, self.manifest, goal.frontier)

    def _await(self, query: StreamingQuery) -> None:
        """Wait a moment; a failed query raises here, in our words."""
        from pyspark.errors import StreamingQueryException

        try:
            is_over = query.awaitTermination(_TICK)
        except StreamingQueryException as error:
            if isinstance(self._failure, BrokenOffError):
                self._interrupted.set()
            if self._interrupted.is_set():
                return  # being interrupted is why it ended
            raise self._explain(error) from error
        if is_over and not self._idle.is_set() and not self._interrupted.is_set():
            raise RunError("the query ended before the run did", fix="tidemill resume")

    def _until_idle(self, query: StreamingQuery) -> None:
        """Wait until the last batch, and the no-data batch that closes windows, are committed."""
        try:
            query.processAllAvailable()
            self._idle.set()
        except Exception as error:
            self._failure = self._failure or error

    def _is_told_to_end(self) -> bool:
        """Whether somebody or something told it to end. Asked by the watchdog.

        A run at its planned end may take all the time that its last batch needs.
        """
        if self._stopping.is_set() or self._grown.is_set() or self._failure is not None:
            return True
        control = read_control(self.folder.path)
        return control.stopping or control.cancelled

    def _is_away(self) -> bool:
        """Whether a log does not answer, as was last told, or a commit goes on, which may wait too.

        A commit that does something is no reason to hurry: the watchdog sees it compute.
        """
        if self.committer.breaker.is_inside:
            return True
        lags = (read_lag(self.folder.path, name) for name in self.manifest.sources)
        return any(lag and lag.waiting and lag.at >= self._clock for lag in lags)

    def _hurry(self, query: StreamingQuery, step: Step) -> None:
        """The watchdog's orders; a batch that is interrupted runs again when the run goes on."""
        if step is Step.INTERRUPT and not self._ended.is_set():
            if not isinstance(self._failure, BrokenOffError):
                self._why_interrupted = self._failure
            self._interrupted.set()
            self.committer.breaker.break_off()
            is_done_within(0, partial(_stop, query))  # begun here, not waited for
        elif step is Step.KILL:
            self._is_overdue = True
            self.end_jvm()

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query if it is still there; the watchdog and this do not wait for ever."""
        self._stopping.set()
        if not is_done_within(_ENDING, partial(_stop, query)):
            self.end_jvm()

    def _overdue(self) -> RunError:
        return RunError(
            "the run was told to end and its query did not: it was broken off in the middle of a "
            "batch, which counts as never begun",
            where=f"run {self.manifest.run}",
            fix=f"'tidemill resume {self.manifest.run}' goes on exactly where it was",
        )

    def _why(self, error: Exception) -> Exception:
        """Why the watch ended: a JVM that is gone answers nothing but errors of its connection."""
        from py4j.protocol import Py4JError

        if self._is_overdue:
            return self._overdue()
        if isinstance(error, TidemillError) or not isinstance(error, Py4JError | OSError):
            return error
        if self._failure is not None:
            return self._explain(error)
        if isinstance(error, OSError) and error.filename is not None:
            return RunError(
                f"the run's files cannot be read or written: {error.strerror}",
                where=str(error.filename),
                fix="free space or give write permission, then "
                f"'tidemill resume {self.manifest.run}'",
            )
        return RunError(
            f"Spark does not answer any more: {error}",
            where=str(self.folder.path / SPARK_LOG),
            fix=f"the log may say why its JVM ended; then 'tidemill resume {self.manifest.run}'",
        )

    def _explain(self, error: BaseException) -> TidemillError:
        """The cause in a short text: our own error if there is one inside."""
        failure = self._failure
        if isinstance(failure, TidemillError):
            return failure
        text = str(error) if failure is None else f"{error}\n{type(failure).__name__}: {failure}"
        return (
            find_error(text)
            or self._user_error(text)
            or RunError(
                f"the query failed: {_cause(text)}",
                fix=f"correct the cause, then 'tidemill resume {self.manifest.run}'; "
                "--verbose shows the trace",
            )
        )

    def _user_error(self, text: str) -> RunError | None:
        """An exception of the user's code, and what can be done when it is mended."""
        found = find_user_error(text, self.base)
        if found is None:
            return None
        run = self.manifest.run
        fix = f"correct it, then 'tidemill resume {run}' begins again with the corrected code"
        if self.registry.newest_batch(run) is not None:
            fix = (
                f"rows are committed already, and 'tidemill resume {run}' goes on with the same "
                "code only; when it is corrected, start a new run: " + start_again(self.manifest)
            )
        values = f", called with {found.values}" if found.values else ""
        return RunError(
            f"{found.function} failed with {found.raised}{values}",
            where=f"pipeline {self.manifest.pipeline} ({found.file.name}:{found.line})",
            fix=fix,
            function=found.function,
            line=found.line,
        )


def is_past(folder: RunFolder, manifest: Manifest, moment: int) -> bool:
    """Whether a run with a log of requests has all that came before a moment.

    Of such a log that is every request made before it, whatever the times of the rows that they
    brought. Where no source tells how far its requests are done, frontiers alone decide.
    """
    lags = {name: read_lag(folder.path, name) for name in manifest.sources}
    done = {name: lag.done for name, lag in lags.items() if lag and lag.done is not None}
    if not done:
        return False
    entry = latest_entry(folder.checkpoint)
    reached = {**(entry.slowest() if entry else {}), **done}
    return all(reached.get(name, moment - 1) >= moment for name in manifest.sources)


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        query.stop()


def _tasks_done(context: SparkContext) -> Hashable:
    """What Spark has done of its jobs so far."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return tuple((s.stageId, s.numCompletedTasks) for s in stages if s is not None)


def _cause(text: str) -> str:
    """The line that says why: the last Python exception, else the innermost Java one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_PYTHON, _JAVA):
        found = [line for line in lines if pattern.match(line)]
        if found:
            return found[-1].removeprefix("Caused by: ")[:500]
    return lines[0][:500] if lines else "no reason given"

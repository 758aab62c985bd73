"""The loop that drives a run: start the query, watch it, throttle it, end it."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill import errors
from tidemill.errors import RunError, TidemillError
from tidemill.planning.offsets import committed_entry
from tidemill.planning.requests import Goal
from tidemill.runtime.feeds import has_feed, is_past
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.rewind import repeat_end
from tidemill.runtime.throttle import Throttle
from tidemill.sources.control import read_control, update_control
from tidemill.types import FOREVER_MICROS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.committer import Committer
    from tidemill.runtime.logwatch import LogWatch
    from tidemill.runtime.run import RunFolder
    from tidemill.runtime.seam import SeamWatch

_TICK = 0.1
_PYTHON = re.compile(r"^(?!java|org\.|py4j|Caused)[\w.]*(?:Error|Exception|Exit)\b.*")
_JAVA = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Error|Exception): .+")
_OURS = re.compile(
    r"tidemill\.errors\.(\w+): (.*?)(?:\n\s*\n|\n\s+at |\n\w+\.|\n\s*SQLSTATE|\n===|\Z)",
    re.DOTALL,
)


@dataclass
class Driver:
    """Drives one query to its planned end, or to a clean stop.

    A clean stop lets the running batch finish: sources are told that nothing more is released,
    then the idle query is stopped. ``query.stop()`` alone would interrupt the batch.
    """

    manifest: Manifest
    folder: RunFolder
    registry: Registry
    committer: Committer
    on_batch: Callable[[BatchRecord], None]
    goal: Goal
    seam: SeamWatch | None = None
    logs: LogWatch | None = None

    def __post_init__(self) -> None:
        """Nothing has run yet, or another driver's batches have."""
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._idle = threading.Event()
        self._stopping = threading.Event()
        done = committed_entry(self.folder.checkpoint)
        self._frontier = min(done.slowest().values()) if done else self.manifest.frontiers[0]

    def run(self, frame: DataFrame) -> RunState:
        """Run the query; returns how it ended. Raises what made it fail."""
        repeat_end(self.folder)
        self._began = time.monotonic()
        self._throttle = Throttle(self.folder, self.manifest)
        self._throttle.look()
        query = (
            frame.writeStream.foreachBatch(self._handle)
            .option("checkpointLocation", str(self.folder.checkpoint))
            .trigger(processingTime="0 seconds")
            .outputMode("append")
            .start()
        )
        try:
            state = self._watch(query)
        finally:
            if query.isActive:
                query.stop()
        if state is RunState.FINISHED:
            shutil.rmtree(self.folder.path / "side", ignore_errors=True)
        return state

    def stop(self) -> None:
        """Ask for a clean stop, from a signal handler or another thread."""
        self._stopping.set()

    def _handle(self, frame: DataFrame, batch: int) -> None:
        """Called by Spark in a thread of its own."""
        try:
            record = self.committer.commit(frame, batch)
            self.registry.record_batch(self.manifest.run, record)
        except BaseException as error:
            self._failure = error
            raise
        self._throttle.count(batch, record.on_time + record.late + record.dead)
        self._frontier = record.frontier
        self.on_batch(record)
        if record.frontier >= FOREVER_MICROS:
            self._ended.set()

    def _watch(self, query: StreamingQuery) -> RunState:
        waiter: threading.Thread | None = None
        while True:
            self._await(query)
            control = read_control(self.folder.path)
            self._throttle.look()
            if self.seam is not None:
                self.seam.look()
            if self.logs is not None:
                self.logs.look()
            if control.stopping or self._is_reached():
                self.stop()
            leaving = self._ended.is_set() or self._stopping.is_set() or control.cancelled
            if self._stopping.is_set() and not control.paused:
                update_control(self.folder.path, paused=True)
            if leaving and waiter is None:
                waiter = threading.Thread(target=self._until_idle, args=(query,), daemon=True)
                waiter.start()
            if self._idle.is_set():
                if self._ended.is_set():
                    return RunState.FINISHED
                return RunState.CANCELLED if control.cancelled else RunState.STOPPED

    def _is_reached(self) -> bool:
        goal = self.goal
        if goal.seconds is not None and time.monotonic() - self._began >= goal.seconds:
            return True
        if goal.frontier is None or self._frontier >= goal.frontier:
            return goal.frontier is not None
        return has_feed(self.manifest) and is_past(self.folder, self.manifest, goal.frontier)

    def _await(self, query: StreamingQuery) -> None:
        """Wait a moment; a failed query raises here, in our words."""
        from pyspark.errors import StreamingQueryException

        try:
            if query.awaitTermination(_TICK) and not self._idle.is_set():
                raise RunError("the query ended before the run did", fix="tidemill resume")
        except StreamingQueryException as error:
            raise self._explain(error) from error

    def _until_idle(self, query: StreamingQuery) -> None:
        """Wait until the last batch, and the no-data batch that closes windows, are committed."""
        try:
            query.processAllAvailable()
            self._idle.set()
        except Exception as error:
            self._failure = self._failure or error

    def _explain(self, error: Exception) -> TidemillError:
        """The cause in a short text: our own error if there is one inside."""
        if isinstance(self._failure, TidemillError):
            return self._failure
        failure = self._failure
        text = str(error) if failure is None else f"{error}\n{type(failure).__name__}: {failure}"
        found = _OURS.search(text)
        if found:
            family = getattr(errors, found[1], RunError)
            message, _, fix = found[2].partition("\n  fix: ")
            return family(message.strip(), fix=fix.strip())
        return RunError(
            f"the query failed: {_cause(text)}",
            fix=f"correct the cause, then 'tidemill resume {self.manifest.run}'; "
            "--verbose shows the trace",
        )


def _cause(text: str) -> str:
    """The line that says why: the last Python exception, else the innermost Java one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_PYTHON, _JAVA):
        found = [line for line in lines if pattern.match(line)]
        if found:
            return found[-1].removeprefix("Caused by: ")[:500]
    return lines[0][:500] if lines else "no reason given"

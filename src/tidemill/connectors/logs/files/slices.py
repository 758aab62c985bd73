"""The slices of a feed of files: requests decided once, then a pure function of their two offsets.

The offsets are those of the topic of requests. Deciding a slice means looking at the files that its
requests name: whether they are there, and how far they reach. What was found is kept in the run's
reading lists, and nobody looks at it again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.logs.files.reader import FeedReader
from tidemill.connectors.logs.files.readinglist import ListedRequest, ReadingLists
from tidemill.connectors.logs.files.requests import Message
from tidemill.connectors.logs.files.root import Root, StorageAway
from tidemill.connectors.logs.files.scan import Looker
from tidemill.connectors.logs.kafka.log import LogAway, LogState
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.logs.kafka.slices import LiveSlices
from tidemill.connectors.pieces import Piece, PieceReader
from tidemill.connectors.tasks import deal_whole
from tidemill.errors import SourceError
from tidemill.planning.feed import (
    Asked,
    begin_reach,
    floor_before,
    idle_reach,
    next_frontier,
    reach_after,
)
from tidemill.planning.offsets import Offset
from tidemill.rows.columns import INGEST_TIME, OFFSET, PARTITION
from tidemill.runfolder.decided_slices import Ledger
from tidemill.runfolder.lag import Lag, write_lag

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.connectors.logs.kafka.log import KafkaLog
    from tidemill.planning.manifest import SourcePin

_MOST = 1_000
"""Requests in one slice, and offsets of a partition that are looked at for it."""


class FileSlices(LiveSlices):
    """One feed of one run, on the driver's side."""

    def __init__(
        self,
        run: Path,
        source: str,
        pin: SourcePin,
        client: dict[str, str],
        schema: pa.Schema,
        *,
        root: str,
    ) -> None:
        """``client`` are the Kafka client's settings for the topic of requests."""
        super().__init__(run, source, pin, client, schema)
        assert pin.live is not None and pin.live.feed is not None
        self.slack = pin.live.feed.slack
        self.root = Root(root)
        self.lists, self.ledger = ReadingLists(run, source), Ledger(run, source)
        self._rests = 0.0

    @cached_property
    def looker(self) -> Looker:
        """Looks into requested files."""
        return Looker(self.root, self.pin)

    def prove(self, start: Offset) -> None:
        """Nothing to prove: what a decided slice reads is in its reading list, not in the topic."""

    def _decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        begin = start.positions or {}
        state = self.log.look()
        self._require_requests(state, start)
        until = self._until(state)
        ends = {
            n: max(at, begin.get(str(n), 0)) for n, at in self.log.ends_at(until, state).items()
        }
        messages, limit = self._pending(begin, ends)
        is_whole, until = limit is None, until if limit is None else min(until, limit)
        done = min([until, *(message.at for message in messages[:1])])
        if widest <= 0 or (messages and time.monotonic() < self._rests):
            self._note(state, start.frontier, begin, done)
            return None
        taken, reach = self._take(start, messages, widest, self._budget(rate))
        if len(taken) < len(messages):
            is_whole, until = False, messages[len(taken)].at
        if not is_whole:
            ends = _ends_after(begin, ends, messages[: len(taken)])
        reach = idle_reach(reach, until, self.slack, start.frontier + widest)
        frontier = next_frontier(start.frontier, reach, bool(taken))
        self._note(state, start.frontier, begin, done)
        if frontier == start.frontier:
            return None
        if rate is not None:
            self._rests = time.monotonic() + sum(request.rows for request in taken) / rate
        end = Offset(self.source, frontier, {str(number): at for number, at in ends.items()})
        self.lists.keep(start.frontier, end, taken)
        self._tidy()
        return end

    def _take(
        self, start: Offset, messages: list[Message], widest: int, budget: int
    ) -> tuple[list[ListedRequest], int]:
        """As many requests as a slice holds, at least one; and how far the feed is after them."""
        reach, rows = begin_reach(start.frontier), 0
        taken: list[ListedRequest] = []
        for message in messages:
            if taken and (rows >= budget or reach - start.frontier > widest or len(taken) == _MOST):
                break
            floor = floor_before(reach, message.at, self.slack)
            try:
                request, last = self.looker.look(message, floor)
            except StorageAway as away:
                if taken:
                    break
                raise LogAway(str(away)) from None
            reach = reach_after(floor, Asked(message.at, last, request.to))
            rows += request.rows
            taken.append(request)
        return taken, reach

    def _until(self, state: LogState) -> int:
        """Every request that the log took before this can be read."""
        hidden = [
            self.log.time_at(number, stable)
            for number, stable in state.stable.items()
            if stable < state.high[number]
        ]
        return min([state.clock - self.live.slack, *(at for at in hidden if at is not None)])

    def _pending(
        self, begin: dict[str, int], ends: dict[int, int]
    ) -> tuple[list[Message], int | None]:
        """Requests in their order, without a gap; if not all, no other was made before a time."""
        found: list[Message] = []
        limits: list[tuple[int, int]] = []
        for number, end in ends.items():
            at, messages = begin.get(str(number), 0), list[Message]()
            while at < end and not messages:
                messages = self._messages(number, at, min(end, at + _MOST))
                at = min(end, at + _MOST)
            found += messages
            if at < end and messages:
                limits.append((messages[-1].at, number))
        limit = min(limits, default=None)
        if limit is not None:
            found = [message for message in found if (message.at, message.partition) <= limit]
        found.sort(key=lambda message: message.order)
        return found, None if limit is None else limit[0]

    def _messages(self, partition: int, start: int, end: int) -> list[Message]:
        """The requests of a range of offsets."""
        raw = {"kind": "raw", "columns": ""}
        own = ("value", INGEST_TIME, PARTITION, OFFSET)
        pin = replace(
            self.pin, ingest_time=INGEST_TIME, partition=PARTITION, offset=OFFSET, where=None
        )
        reader = KafkaReader(self.client, pin, replace(self.live, format=raw), self.schema)
        found = []
        for batch in reader.read(Piece((partition, start, end), 0, 0, 0), own):
            values, times = batch.column("value"), batch.column(INGEST_TIME).cast("int64")
            offsets = batch.column(OFFSET)
            found += [
                Message(partition, offset, at, value)
                for offset, at, value in zip(
                    offsets.to_pylist(), times.to_pylist(), values.to_pylist(), strict=True
                )
            ]
        return found

    def _require_requests(self, state: LogState, start: Offset) -> None:
        try:
            self._require_same_log(state, start)
        except SourceError as error:
            if "first" not in error.facts:
                raise
            fix = "request those files again in a new run, and raise the topic's retention.ms"
            raise SourceError(error.message, where=error.where, fix=fix, **error.facts) from None

    def _note(self, state: LogState, frontier: int, begin: dict[str, int], done: int) -> None:
        """Tell `status`: every request made before ``done`` is committed."""
        rows = {str(n): high - begin.get(str(n), 0) for n, high in state.high.items()}
        write_lag(self.run, self.source, Lag(state.clock, frontier, rows, done=done))

    def _tidy(self) -> None:
        """Lists go when the ledger has forgotten their slices."""
        kept = self.ledger.starts()
        if kept:
            self.lists.forget(kept[0])

    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[PieceReader, list[list[Piece]]]:
        """What reads a slice, and its files dealt to tasks: the largest to the least laden."""
        low, high = start.frontier, end.frontier
        pieces = [
            Piece((request, file), low, high, max(1, 0 if file is None else file.rows))
            for request in self.lists.of(low, end)
            for file in (request.files or (None,))
        ]
        return FeedReader(self.root, self.pin, self.schema), deal_whole(pieces, tasks)


def _ends_after(
    begin: dict[str, int], ends: dict[int, int], taken: list[Message]
) -> dict[int, int]:
    """Where each partition is read to if only these messages were taken."""
    found = {number: begin.get(str(number), 0) for number in ends}
    for message in taken:
        found[message.partition] = max(found[message.partition], message.offset + 1)
    return found


def first_reach(
    log: KafkaLog, state: LogState, start: str, requests: int, slack: int | None
) -> int:
    """The frontier of a run that begins with this feed.

    A feed that promises nothing may begin with files of any age: it begins before all of them.
    """
    if slack is None:
        return 0
    now = state.clock - requests - slack
    if start != "earliest":
        return now
    times = [log.time_at(number, low) for number, low in state.low.items()]
    return min([now, *(at - slack for at in times if at is not None)])

"""The slices of a feed of files: requests decided once, then a pure function of their two offsets.

The offsets are those of the topic of requests. Deciding a slice means looking at the files that its
requests name: whether they are there, and how far they reach. What was found is kept in the run's
reading lists, and nobody looks at it again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.connectors.logs.contract import LogAway
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.files.reader import FeedReader
from tidemill.connectors.logs.files.readinglist import ListedRequest, ReadingLists
from tidemill.connectors.logs.files.requests import Message
from tidemill.connectors.logs.files.root import Root, StorageAway
from tidemill.connectors.logs.files.scan import Looker
from tidemill.connectors.logs.kafka.positions import TopicPositions
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.logs.kafka.slices import TopicSlices
from tidemill.connectors.pieces import Piece
from tidemill.connectors.tasks import spread
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
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.runfolder.lag import Lag

if TYPE_CHECKING:
    from tidemill.connectors.logs.contract import SlicesPlace
    from tidemill.connectors.logs.kafka.log import LogState
    from tidemill.connectors.pieces import PieceReader

_MOST = 1_000
"""Requests in one slice, and offsets of a partition that are looked at for it."""


class FileSlices(TopicSlices):
    """One feed of one run."""

    has_own_floor = True  # each request has one, see planning.feed

    def __init__(self, place: SlicesPlace) -> None:
        """The topic is that of requests."""
        super().__init__(place)
        self.slack = FeedPin.of(self.live).slack
        self.root = Root(place.settings["root"])
        self.lists = ReadingLists(self.run, self.source)
        self.decided_slices = DecidedSlices(self.run, self.source)
        self._rests = 0.0

    @cached_property
    def looker(self) -> Looker:
        """Looks into requested files."""
        return Looker(self.root, self.pin)

    def prove(self, start: Offset) -> None:
        """Nothing to prove: what a decided slice reads is in its reading list, not in the topic."""

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """As many requests as a slice holds; their files are looked into."""
        begin = TopicPositions.from_json(start.positions)
        state = self.log.look()
        self._require_requests(state, start)
        until = self._until(state)
        ends = {n: max(at, begin[n]) for n, at in self.log.ends_at(until, state).items()}
        messages, limit = self._pending(begin, ends)
        is_whole, until = limit is None, until if limit is None else min(until, limit)
        done = min([until, *(message.at for message in messages[:1])])
        if widest <= 0 or (messages and time.monotonic() < self._rests):
            self._note(state, start.frontier, begin, done)
            return None
        taken, reach = self._take(start, messages, widest, self.budget(rate))
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
        end = Offset(self.source, frontier, TopicPositions(ends).to_json())
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
        self, begin: TopicPositions, ends: dict[int, int]
    ) -> tuple[list[Message], int | None]:
        """Requests in their order, without a gap; if not all, no other was made before a time."""
        found: list[Message] = []
        limits: list[tuple[int, int]] = []
        for number, end in ends.items():
            at, messages = begin[number], list[Message]()
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

    def _note(self, state: LogState, frontier: int, begin: TopicPositions, done: int) -> None:
        """Tell `status`: every request made before ``done`` is committed."""
        self.tell(Lag(state.clock, frontier, begin.left(state.high), done=done))

    def _tidy(self) -> None:
        """Lists go when the decided slices have forgotten their slices."""
        kept = self.decided_slices.starts()
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
        return FeedReader(self.root, self.pin, self.schema), spread(pieces, tasks)


def _ends_after(
    begin: TopicPositions, ends: dict[int, int], taken: list[Message]
) -> dict[int, int]:
    """Where each partition is read to if only these messages were taken."""
    found = {number: begin[number] for number in ends}
    for message in taken:
        found[message.partition] = max(found[message.partition], message.offset + 1)
    return found

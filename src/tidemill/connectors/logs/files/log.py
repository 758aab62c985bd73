"""A feed of files as a live log: on the driver, and its slices.

Positions are offsets in the topic of requests. Deciding a slice means looking at the files that its
requests name: whether they are there, and how far they reach. What was found is kept in the run's
reading lists, and nobody looks at it again: a slice is a pure function of its two offsets.
"""

from __future__ import annotations

import time
from dataclasses import replace

from tidemill.connectors.logs.contract import Json, Log, LogAway, SlicesPlace
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.files.reader import FeedReader
from tidemill.connectors.logs.files.readinglist import ListedRequest, ReadingLists
from tidemill.connectors.logs.files.requests import Looker, Message
from tidemill.connectors.logs.files.root import Root, StorageAway
from tidemill.connectors.logs.kafka.log import TopicLog, TopicSlices, times_at
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.logs.kafka.topic import LogState, TopicPositions
from tidemill.connectors.pieces import Piece, PieceReader
from tidemill.connectors.tasks import spread
from tidemill.errors import PlanError, SourceError
from tidemill.planning.feed import (
    Asked,
    begin_reach,
    floor_before,
    idle_reach,
    next_frontier,
    reach_after,
)
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import Beginning
from tidemill.rows.columns import INGEST_TIME, OFFSET
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.runfolder.lag import Lag

_MOST = 1_000
"""Requests in one slice, and offsets of a partition that are looked at for it."""


class FeedLog(TopicLog):
    """A feed on the driver. Positions and identity are those of its topic of requests."""

    seam = Log.seam  # where history ends in requested files nobody says
    require_seam = Log.require_seam

    @property
    def feed(self) -> FeedPin:
        """What the pin says of the files."""
        return FeedPin.of(self.live)

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """Before all rows of files that may be requested.

        A feed that promises nothing may begin with files of any age: it begins before all of them.
        """
        slack = self.feed.slack
        if slack is None:
            return 0
        places = self.state.low if begin is Beginning.EARLIEST else {}
        times = times_at(self.topic, places)
        return min(at - slack for at in (self.state.clock - self.live.slack, *times))

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """A run begins with the requests of now, whatever the times of the rows in their files."""
        return super().first_positions(begin, self.state.clock - self.live.slack)

    def check_beside(self, streams: int) -> None:
        """Beside other streams a feed needs a slack: an idle feed without one would stop them."""
        if self.feed.slack is None and streams > 1:
            raise PlanError(
                "beside other streams a feed of files needs a slack: while no file is requested "
                "nothing else tells how far it has come",
                where=self.where,
                fix="add live.slack: longer than from a row's ingest time to the request for its "
                "file, for example '70 min' for hourly files",
            )

    @property
    def weakness(self) -> str:
        """What goes wrong if producers stamp the requests."""
        return (
            "producers' clocks decide the order of requests, and so which rows of a file come too "
            "late: they go to late with the reason clock, and the run is no longer exact"
        )


class FileSlices(TopicSlices):
    """The slices of one feed in one run."""

    has_own_floor = True  # each request has one, see planning.feed

    def __init__(self, place: SlicesPlace) -> None:
        super().__init__(place)
        self.slack = FeedPin.of(self.live).slack
        self.root = Root(place.settings["root"])
        self.lists = ReadingLists(self.run, self.source)
        self.looker = Looker(self.root, self.pin)
        self.decided_slices = DecidedSlices(self.run, self.source)
        self._rests = 0.0

    def prove(self, start: Offset) -> None:
        """Nothing to prove: what a decided slice reads is in its reading list, not in the topic."""

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Take as many requests as a slice holds, look into their files, and keep the list."""
        begin = TopicPositions.from_json(start.positions)
        state = self.log.look()
        self._require_requests(state, start)
        # Every request that the log took before this can be read.
        until = min([state.clock - self.live.slack, *times_at(self.log, state.hidden)])
        ends = {n: max(at, begin[n]) for n, at in self.log.ends_at(until, state).items()}
        messages, limit = self._pending(begin, ends)
        is_whole, until = limit is None, until if limit is None else min(until, limit)
        done = min([until, *(message.at for message in messages[:1])])  # all before is committed
        lag = Lag(state.clock, start.frontier, begin.left(state.high), done=done)
        if widest <= 0 or (messages and time.monotonic() < self._rests):
            self.tell(lag)
            return None
        taken, reach = self._take(start, messages, widest, self.budget(rate))
        if len(taken) < len(messages):
            is_whole, until = False, messages[len(taken)].at
        if not is_whole:
            ends = _ends_after(begin, ends, messages[: len(taken)])
        reach = idle_reach(reach, until, self.slack, start.frontier + widest)
        frontier = next_frontier(start.frontier, reach, bool(taken))
        self.tell(lag)
        if frontier == start.frontier:
            return None
        if rate is not None:
            self._rests = time.monotonic() + sum(request.rows for request in taken) / rate
        end = Offset(self.source, frontier, TopicPositions(ends).to_json())
        self.lists.keep(start.frontier, end, taken)
        if kept := self.decided_slices.starts():
            self.lists.forget(kept[0])  # lists go when their slices are forgotten
        return end

    def _take(
        self, start: Offset, messages: list[Message], widest: int, budget: int
    ) -> tuple[list[ListedRequest], int]:
        """As many requests as a slice holds, at least one, and how far the feed has come then."""
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

    def _pending(
        self, begin: TopicPositions, ends: dict[int, int]
    ) -> tuple[list[Message], int | None]:
        """Requests in their order. If some are left out: the time before which none is missing."""
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
        return sorted(found), None if limit is None else limit[0]

    def _messages(self, partition: int, start: int, end: int) -> list[Message]:
        """The requests of a range of offsets."""
        raw = replace(self.live, format={"kind": "raw", "columns": ""})
        reader = KafkaReader(
            self.client,
            replace(self.pin, live=raw, rows=replace(self.pin.rows, where=None)),
            self.schema,
        )
        piece, found = Piece((partition, start, end), 0, 0, 0), list[Message]()
        for batch in reader.read(piece, (INGEST_TIME, OFFSET, "value")):
            times, offsets, values = batch.columns
            rows = zip(times.cast("int64"), offsets, values, strict=True)
            found += [
                Message(at.as_py(), partition, offset.as_py(), value.as_py())
                for at, offset, value in rows
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

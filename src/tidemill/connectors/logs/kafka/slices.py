"""The slices of a live topic: decided once, then a pure function of their two offsets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.connectors.logs.contract import LogAway, LogSlices
from tidemill.connectors.logs.kafka.log import KafkaLog
from tidemill.connectors.logs.kafka.positions import TopicPositions
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.pieces import Piece
from tidemill.connectors.tasks import spread
from tidemill.errors import SourceError
from tidemill.planning.live import PartitionView, find_frontier
from tidemill.planning.offsets import Offset
from tidemill.runfolder.lag import Lag
from tidemill.types import MILLISECOND, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.connectors.logs.contract import SlicesPlace
    from tidemill.connectors.logs.kafka.log import LogState
    from tidemill.connectors.pieces import PieceReader


class TopicSlices(LogSlices):
    """One live topic of one run."""

    def __init__(self, place: SlicesPlace) -> None:
        """The client's settings are the place's; they stand in no file of the run."""
        super().__init__(place)
        self.client: dict[str, str] = place.settings["client"]
        self._is_proven = False

    @cached_property
    def log(self) -> KafkaLog:
        """The topic."""
        return KafkaLog(self.client, self.live.location)

    def prove(self, start: Offset) -> None:
        """Before the first slice is read in this process."""
        if self._is_proven:
            return
        try:
            self._require_same_log(self.log.look(), start)
        except LogAway:
            return  # the reader waits for it
        self._is_proven = True

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """The frontier first, then every partition's end at it."""
        begin = TopicPositions.from_json(start.positions)
        state = self.log.look()
        self._require_same_log(state, start)
        self._is_proven = True
        room = (start.frontier, min(state.clock - self.live.slack, start.frontier + widest))
        views = self._views(state, begin, self.budget(rate), room)
        frontier = find_frontier(
            start.frontier, state.clock, self.live.slack, views.values(), widest
        )
        if frontier <= start.frontier:
            self.tell(Lag(state.clock, start.frontier, begin.left(state.high)))
            return None
        ends = self.log.ends_at(frontier, state)
        end = TopicPositions({n: max(views[n].position, at) for n, at in ends.items()})
        self.tell(Lag(state.clock, frontier, end.left(state.high)))
        return Offset(self.source, frontier, end.to_json())

    def _views(
        self, state: LogState, begin: TopicPositions, budget: int, room: tuple[int, int]
    ) -> dict[int, PartitionView]:
        waiting = {number: state.stable[number] - begin[number] for number in state.low}
        behind = sum(1 for rows in waiting.values() if rows > 0)
        share = max(1, budget // max(1, behind))
        views = {}
        for number, rows in waiting.items():
            at, stable, high = begin[number], state.stable[number], state.high[number]
            full = self._full(state, number, at + share, room) if rows > share else None
            hidden = self.log.time_at(number, stable) if stable < high else None
            views[number] = PartitionView(at, stable, high, full, hidden)
        return views

    def _full(self, state: LogState, partition: int, beyond: int, room: tuple[int, int]) -> int:
        """The ingest time of the first row beyond the budget, as far as it lies in ``room``.

        Ingest times never fall, the log's own may: a row at the budget's end that is behind the
        frontier says nothing. Then the last time is looked for at which the log has not passed it.
        """
        frontier, latest = room
        full = self.log.time_at(partition, beyond)
        if full is None or full > frontier:
            return latest if full is None else full
        low, high = frontier // MILLISECOND, latest // MILLISECOND
        while low < high:
            middle = (low + high + 1) // 2
            if self.log.ends_at(middle * MILLISECOND, state)[partition] <= beyond:
                low = middle
            else:
                high = middle - 1
        return low * MILLISECOND

    def _require_same_log(self, state: LogState, start: Offset) -> None:
        """Never a silent gap: offsets we still need must be there, in the topic we began with."""
        where = f"topic {self.live.location}"
        begin = TopicPositions.from_json(start.positions)
        if self.live.topic is not None and state.topic != self.live.topic:
            raise SourceError(
                "the topic was deleted and made anew: its offsets are those of another log",
                where=where,
                fix="start a new run; what is committed stays",
            )
        for number, low in sorted(state.low.items()):
            at = begin[number]
            if at < low:
                raise SourceError(
                    f"partition {number} no longer has the offsets {at} to {low - 1}: the topic's "
                    f"retention removed them before they were read (all before "
                    f"{show_instant(from_micros(start.frontier))} was)",
                    where=where,
                    fix="go on from the archive with 'tidemill run --from', and raise retention.ms",
                    partition=number,
                    first=at,
                    last=low - 1,
                )
            if at > state.high[number]:
                raise SourceError(
                    f"partition {number} ends at offset {state.high[number]}, but {at} was read "
                    "before: the log lost rows",
                    where=where,
                    fix="start a new run; what is committed stays",
                )
        gone = sorted(begin.offsets.keys() - state.low.keys())
        if gone:
            raise SourceError(
                f"the topic no longer has the partitions {', '.join(map(str, gone))}",
                where=where,
                fix="start a new run; what is committed stays",
            )

    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[PieceReader, list[list[Piece]]]:
        """A range of offsets of each partition."""
        begin = TopicPositions.from_json(start.positions)
        until = TopicPositions.from_json(end.positions)
        pieces = [
            Piece((number, at, stop), start.frontier, end.frontier, stop - at)
            for number, stop in until.offsets.items()
            if stop > (at := begin[number])
        ]
        pieces.sort(key=lambda piece: piece.handle)
        reader = KafkaReader(self.client, self.pin, self.live, self.schema)
        return reader, spread(pieces, tasks)

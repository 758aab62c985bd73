"""The slices of a live topic: decided once, then a pure function of their two offsets."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.logs.kafka.log import KafkaLog, LogAway, LogState
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.pieces import Piece, PieceReader
from tidemill.connectors.tasks import deal_whole
from tidemill.errors import SourceError
from tidemill.planning.live import PartitionView, find_frontier
from tidemill.planning.offsets import Offset
from tidemill.runfolder.lag import Lag, is_due, write_lag, write_waiting
from tidemill.types import MILLISECOND, from_micros, show_instant

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.planning.manifest import SourcePin


class LiveSlices:
    """One live topic of one run, on the driver's side."""

    def __init__(
        self, run: Path, source: str, pin: SourcePin, client: dict[str, str], schema: pa.Schema
    ) -> None:
        """``client`` are the Kafka client's settings; they stand in no file of the run."""
        assert pin.live is not None
        self.run, self.source, self.pin, self.live = run, source, pin, pin.live
        self.client, self.schema = client, schema
        self._is_proven = False

    @cached_property
    def log(self) -> KafkaLog:
        """The topic."""
        return KafkaLog(self.client, self.live.location)

    def decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Where the slice after ``start`` ends, or None if it cannot be said yet."""
        if not is_due(self.run, self.source, self.live.trigger):
            return None
        try:
            return self._decide(start, widest, rate)
        except LogAway as away:
            write_waiting(self.run, self.source, start.frontier, str(away))
            return None

    def prove(self, start: Offset) -> None:
        """Before the first slice is read in this process: the log must be the one we know.

        A driver that died may have left a batch to repeat, whose offsets nobody looks at again.
        """
        if self._is_proven:
            return
        try:
            self._require_same_log(self.log.look(), start)
        except LogAway:
            return  # the reader waits for it
        self._is_proven = True

    def _decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        begin = start.positions or {}
        state = self.log.look()
        self._require_same_log(state, start)
        self._is_proven = True
        room = (start.frontier, min(state.clock - self.live.slack, start.frontier + widest))
        views = self._views(state, begin, self._budget(rate), room)
        frontier = find_frontier(
            start.frontier, state.clock, self.live.slack, views.values(), widest
        )
        if frontier <= start.frontier:
            self._tell(state, start.frontier, begin)
            return None
        ends = self.log.ends_at(frontier, state)
        positions = {str(number): max(views[number].position, at) for number, at in ends.items()}
        self._tell(state, frontier, positions)
        return Offset(self.source, frontier, positions)

    def _budget(self, rate: int | None) -> int:
        if rate is None:
            return self.live.max_rows
        return max(1, min(self.live.max_rows, round(rate * self.live.trigger / 1e6)))

    def _views(
        self, state: LogState, begin: dict[str, int], budget: int, room: tuple[int, int]
    ) -> dict[int, PartitionView]:
        waiting = {number: state.stable[number] - begin.get(str(number), 0) for number in state.low}
        behind = sum(1 for rows in waiting.values() if rows > 0)
        share = max(1, budget // max(1, behind))
        views = {}
        for number, rows in waiting.items():
            at, stable, high = begin.get(str(number), 0), state.stable[number], state.high[number]
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
        where, begin = f"topic {self.live.location}", start.positions or {}
        if self.live.topic is not None and state.topic != self.live.topic:
            raise SourceError(
                "the topic was deleted and made anew: its offsets are those of another log",
                where=where,
                fix="start a new run; what is committed stays",
            )
        for number, low in sorted(state.low.items()):
            at = begin.get(str(number), 0)
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
        gone = sorted(set(begin) - {str(number) for number in state.low}, key=int)
        if gone:
            raise SourceError(
                f"the topic no longer has the partitions {', '.join(gone)}",
                where=where,
                fix="start a new run; what is committed stays",
            )

    def _tell(self, state: LogState, frontier: int, positions: dict[str, int]) -> None:
        rows = {
            str(number): high - positions.get(str(number), 0) for number, high in state.high.items()
        }
        write_lag(self.run, self.source, Lag(state.clock, frontier, rows))

    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[PieceReader, list[list[Piece]]]:
        """What reads a slice, and its ranges dealt to tasks: the longest to the least laden."""
        begin, until = start.positions or {}, end.positions or {}
        pieces = [
            Piece((int(number), at, stop), start.frontier, end.frontier, stop - at)
            for number, stop in sorted(until.items(), key=lambda found: int(found[0]))
            if stop > (at := begin.get(number, 0))
        ]
        loads = deal_whole(pieces, tasks)
        return KafkaReader(self.client, self.pin, self.live, self.schema), loads


def first_moment(log: KafkaLog, state: LogState, start: str, slack: int) -> int:
    """The frontier of a run that begins in this log: before its earliest row, or now.

    Rows that an open transaction hides are still to come, also for a run that begins now.
    """
    if start == "earliest":
        places = state.low
    else:
        places = {n: at for n, at in state.stable.items() if at < state.high[n]}
    times = [log.time_at(number, at) for number, at in places.items()]
    return min([state.clock - slack, *(found for found in times if found is not None)])

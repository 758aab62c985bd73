"""A topic as a live log: where a run enters it, what it risks, and its slices.

A slice is decided once. After that its tasks are a pure function of its two offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property

from tidemill.archive.progress import ArchiveProgress, frontier_of, name_of, topic_of
from tidemill.connectors.logs.contract import Json, Log, LogAway, LogSlices, SlicesPlace
from tidemill.connectors.logs.kafka.reader import KafkaReader
from tidemill.connectors.logs.kafka.topic import KafkaLog, LogState, TopicPositions
from tidemill.connectors.pieces import Piece, PieceReader
from tidemill.connectors.tasks import spread
from tidemill.errors import PlanError, SourceError
from tidemill.planning.live import PartitionView, find_frontier
from tidemill.planning.manifest import HistoryPhase, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.planning.plan import Beginning
from tidemill.runfolder.lag import Lag
from tidemill.types import MILLISECOND, from_micros, show_instant


class TopicLog(Log):
    """One topic; its state is what was seen at the last look."""

    state: LogState

    def __init__(self, pin: SourcePin, topic: KafkaLog) -> None:
        super().__init__(pin)
        self.topic = topic

    def look(self) -> None:
        """Clock, partitions, ends. Raises :class:`LogAway`."""
        self.state = self.topic.look()

    def look_now(self) -> None:
        """Look while a run is planned: a topic that is away is an error."""
        self.state = self.topic.look_now()

    @property
    def identity(self) -> str:
        """The topic's id. A topic that was deleted and created again has another one."""
        return self.state.topic

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """Before the earliest row, or now, by the clock that was read before the topic.

        Rows that an open transaction hides are still to come, also for a run that begins now.
        """
        state = self.state
        places = state.low if begin is Beginning.EARLIEST else state.hidden
        return min([state.clock - self.live.slack, *times_at(self.topic, places)])

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """The offsets of the first rows that are not before the frontier."""
        is_first = begin is Beginning.EARLIEST
        found = self.state.low if is_first else self.topic.ends_at(frontier, self.state)
        return TopicPositions(found).to_json()

    def seam(self, reached: Mapping[int, ArchiveProgress], clock: int) -> HistoryPhase:
        """The archive's frontier, and the offsets that its snapshot says the topic goes on at."""
        self._require_same_name(reached)
        seam = frontier_of(reached)
        if seam is None:
            raise PlanError(
                f"{self.pin.location} does not say how far it follows the log, so there is no seam",
                where=self.where,
                fix=f"let 'tidemill archive run {self.pin.stream}' write the archive; "
                "'tidemill backfill' needs no seam",
            )
        return HistoryPhase(
            seam=seam,
            archive=self.pin.archive,
            positions=TopicPositions({n: found.next for n, found in reached.items()}).to_json(),
            topic=topic_of(reached),
        )

    def _require_same_name(self, reached: Mapping[int, ArchiveProgress]) -> None:
        """The archive must follow this stream's own topic, as its snapshots say."""
        followed = name_of(reached)
        if followed in (None, self.live.location):
            return
        raise SourceError(
            f"the stream's archive follows the topic {followed!r}, not {self.live.location!r}: its "
            "offsets are those of another log",
            where=self.where,
            fix="give the stream an archive table of its own: another archive.table in the YAML; "
            f"or correct live.topic, if it is {followed!r}",
        )

    def require_seam(self, phase: HistoryPhase) -> None:
        """No offset after the archive may be gone, and the topic must be the same one."""
        if phase.topic is not None and phase.topic != self.state.topic:
            raise SourceError(
                "the topic was deleted and made anew since it was archived, or it is one of "
                "another cluster: the archive's offsets are those of another log",
                where=self.where,
                fix="archive the new topic into a new table: another archive.table in the YAML",
            )
        begin = TopicPositions.from_json(phase.positions)
        gaps = {
            number: (begin[number], low - 1)
            for number, low in sorted(self.state.low.items())
            if low > begin[number]
        }
        if gaps:
            lost = "; ".join(
                f"partition {number} lacks the offsets {first} to {last}"
                for number, (first, last) in gaps.items()
            )
            raise SourceError(
                f"the log no longer holds the seam at {show_instant(from_micros(phase.seam))}: "
                f"{lost}",
                where=self.where,
                gaps=gaps,
                fix=f"'tidemill archive run {self.pin.stream}' must follow the topic more closely "
                "than its retention; rows that neither has are lost, and --from cannot begin "
                "before them",
            )

    def risks(self, source: str) -> Iterable[str]:
        """Whose clock stamps records, and what the broker removes."""
        kind, policy = None, None
        with suppress(LogAway, SourceError):
            kind = self.topic.setting("message.timestamp.type")
            policy = self.topic.setting("cleanup.policy")
        topic = self.live.location
        if kind == "CreateTime":
            yield (
                f"{source}: the topic {topic} has create time: {self.weakness}; to mend it for "
                "what comes from then on, give the topic message.timestamp.type=LogAppendTime"
            )
        elif kind is None:
            yield (
                f"{source}: the broker does not say whether the topic {topic} has log-append time; "
                f"with create time {self.weakness}"
            )
        if policy is not None and "compact" in policy:
            yield (
                f"{source}: the topic {topic} is compacted (cleanup.policy={policy}): the broker "
                "removes older records of a key, so a batch that is read again, and an archive or "
                "a run that lags behind, see fewer rows than a live run saw; give the topic "
                "cleanup.policy=delete, or a min.compaction.lag.ms longer than any run may lag"
            )

    @property
    def weakness(self) -> str:
        """What goes wrong if producers stamp the records (create time)."""
        if self.pin.rows.for_archive:
            return (
                "producers' clocks decide the ingest time; a row that comes behind the frontier is "
                "archived with the time its slice began, the run is no longer exact, and a "
                "backfill may take the row where a live run called it late"
            )
        return (
            "producers' clocks decide the ingest time; a row that comes behind the frontier goes "
            "to late with the reason clock, and the run is no longer exact"
        )

    def next_times(self, moment: int, parts: list[str]) -> dict[str, int]:
        """One question for all partitions; rows that a transaction hides count too."""
        found = self.topic.next_times(moment, [int(part) for part in parts])
        return {str(number): at for number, at in found.items()}


def times_at(topic: KafkaLog, places: Mapping[int, int]) -> list[int]:
    """When the first rows at or after these offsets came (µs), where there are some."""
    found = [topic.time_at(number, offset) for number, offset in places.items()]
    return [at for at in found if at is not None]


class TopicSlices(LogSlices):
    """The slices of one topic in one run."""

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
        """Compare the topic with the run's once, before the first slice is read in this process."""
        if self._is_proven:
            return
        try:
            self._require_same_log(self.log.look(), start)
        except LogAway:
            return  # the reader waits for it
        self._is_proven = True

    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Decide the frontier first, then where every partition ends at it."""
        begin = TopicPositions.from_json(start.positions)
        state = self.log.look()
        self._require_same_log(state, start)
        self._is_proven = True
        slack = self.live.slack
        room = (start.frontier, min(state.clock - slack, start.frontier + widest))
        views = self._views(state, begin, self.budget(rate), room)
        frontier = find_frontier(start.frontier, state.clock, slack, views.values(), widest)
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
        low += bisect_right(
            range(low + 1, high + 1),
            beyond,
            key=lambda moment: self.log.ends_at(moment * MILLISECOND, state)[partition],
        )
        return low * MILLISECOND

    def _require_same_log(self, state: LogState, start: Offset) -> None:
        """Never a silent gap: offsets we still need must be there, in the topic we began with."""
        where, anew = f"topic {self.live.location}", "start a new run; what is committed stays"
        begin = TopicPositions.from_json(start.positions)
        if self.live.topic is not None and state.topic != self.live.topic:
            raise SourceError(
                "the topic was deleted and made anew: its offsets are those of another log",
                where=where,
                fix=anew,
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
                    fix=anew,
                )
        gone = sorted(begin.offsets.keys() - state.low.keys())
        if gone:
            raise SourceError(
                f"the topic no longer has the partitions {', '.join(map(str, gone))}",
                where=where,
                fix=anew,
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
        return KafkaReader(self.client, self.pin, self.schema), spread(pieces, tasks)

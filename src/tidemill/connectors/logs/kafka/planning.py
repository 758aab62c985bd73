"""A topic as the driver sees it: where a run enters it, whether it holds the seam, its risks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.archive.progress import frontier_of, name_of, topic_of
from tidemill.connectors.logs.contract import Log, LogAway
from tidemill.connectors.logs.kafka.positions import TopicPositions
from tidemill.errors import PlanError, SourceError
from tidemill.planning.manifest import HistoryPhase
from tidemill.planning.plan import Beginning
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.archive.progress import ArchiveProgress
    from tidemill.connectors.logs.contract import Json
    from tidemill.connectors.logs.kafka.log import KafkaLog, LogState
    from tidemill.planning.manifest import SourcePin


class TopicLog(Log):
    """One topic, with the state in which it was last seen."""

    def __init__(self, pin: SourcePin, topic: KafkaLog) -> None:
        """Nothing is asked yet."""
        super().__init__(pin)
        self.topic = topic
        self._state: LogState | None = None

    @property
    def state(self) -> LogState:
        """What was seen at the last look."""
        assert self._state is not None
        return self._state

    def look(self) -> None:
        """Clock, partitions, ends. Raises :class:`LogAway`."""
        self._state = self.topic.look()

    def look_now(self) -> None:
        """The same for planning."""
        self._state = self.topic.look_now()

    @property
    def identity(self) -> str:
        """The topic's id: made anew it has another one."""
        return self.state.topic

    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """Before the earliest row, or now, by the clock that was read before the topic."""
        del clock
        return first_moment(self.topic, self.state, begin, self.live.slack)

    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """At the rows that are not before the frontier."""
        return self._places(begin, frontier)

    def _places(self, begin: Beginning, moment: int) -> Json:
        state = self.state
        found = state.low if begin is Beginning.EARLIEST else self.topic.ends_at(moment, state)
        return TopicPositions(found).to_json()

    def seam(self, reached: Mapping[int, ArchiveProgress], clock: int) -> HistoryPhase:
        """The archive's frontier, and the offsets that its snapshot says the topic goes on at."""
        del clock
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
            kind, policy = self.topic.time_type(), self.topic.cleanup_policy()
        topic = self.live.location
        yield from _time_risks(source, topic, kind, self.weakness)
        if policy is not None and "compact" in policy:
            yield (
                f"{source}: the topic {topic} is compacted (cleanup.policy={policy}): the broker "
                "removes older records of a key, so a batch that is read again, and an archive or "
                "a run that lags behind, see fewer rows than a live run saw; give the topic "
                "cleanup.policy=delete, or a min.compaction.lag.ms longer than any run may lag"
            )

    @property
    def weakness(self) -> str:
        """What create time costs the reader of the topic."""
        if self.pin.for_archive:
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


def _time_risks(source: str, topic: str, kind: str | None, weakness: str) -> Iterator[str]:
    """``kind`` is message.timestamp.type; None if the broker does not say it."""
    if kind == "CreateTime":
        yield (
            f"{source}: the topic {topic} has create time: {weakness}; to mend it for what comes "
            "from then on, give the topic message.timestamp.type=LogAppendTime"
        )
    elif kind is None:
        yield (
            f"{source}: the broker does not say whether the topic {topic} has log-append time; "
            f"with create time {weakness}"
        )


def first_moment(log: KafkaLog, state: LogState, begin: Beginning, slack: int) -> int:
    """The frontier of a run that begins in this log: before its earliest row, or now.

    Rows that an open transaction hides are still to come, also for a run that begins now.
    """
    if begin is Beginning.EARLIEST:
        places = state.low
    else:
        places = {n: at for n, at in state.stable.items() if at < state.high[n]}
    times = [log.time_at(number, at) for number, at in places.items()]
    return min([state.clock - slack, *(found for found in times if found is not None)])

"""What the system asks of a live log: all of it. Nobody outside of `connectors/logs` knows kinds.

A kind of log is one class in a table (`LOGS` in `config/stream.py`, or an entry point of the group
``tidemill.logs``): its section of the YAML, a :class:`LogHome`. From it comes a
:class:`~tidemill.planning.manifest.LivePin`, which the manifest keeps, and three things are opened:

- on the driver a :class:`Log`: where a run begins, what the plan warns of, what `status` is told;
- in the process beside Spark's JVM :class:`LogSlices`: where each slice ends, and who reads what;
- on executors a `PieceReader` (`connectors/pieces.py`), which comes pickled with its pieces.

**Positions** say where in the log a slice ends. Their type is the log's own; to everybody else they
are a JSON value, kept in Spark's offsets, in the manifest and in the stamps of tables. They must be
small, and equal positions must be equal JSON.

**Time.** Every row has an ingest time, which a row that comes later in the log never undercuts. A
slice is all rows from one frontier up to another, no more and no fewer.

**A restart** decides nothing again: a decided slice is written down before anybody acts on it, and
`share` must give the same tasks with the same rows for its two offsets in every process, however
the log has grown. Rows that the log has lost since are an error, never a shorter slice.

**The easy mistake** is a frontier that overtakes rows: some are accepted by the log with an older
time after one has looked (a clock that differs, an open transaction, a commit in flight). So read
the clock first, then look, and stay a slack behind the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tidemill.config.stream import LOGS, LiveHome
from tidemill.errors import PlanError, SourceError
from tidemill.runfolder.lag import Lag, is_due, write_lag, write_waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.archive.progress import ArchiveProgress
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.pieces import Piece, PieceReader
    from tidemill.planning.manifest import HistoryPhase, LivePin, SourcePin
    from tidemill.planning.offsets import Offset
    from tidemill.planning.plan import Beginning

Json = Any
"""A JSON value that only the log itself understands."""


class LogAway(Exception):
    """The log does not answer now; nothing is wrong with it as far as one can see.

    A run waits for it, and `status` says so. What waiting cannot mend is a `SourceError`.
    """


class LogHome(LiveHome, ABC):
    """The YAML section of a live log. Its module loads nothing heavy: every command reads the YAML.

    Class methods serve where only the manifest is at hand.
    """

    shown: ClassVar[str] = "{kind} {location}"
    """The log in the words of a plan, such as ``topic {location}``."""

    ends_anywhere: ClassVar[bool] = True
    """Whether a slice can end at any whole millisecond that the log has passed: two runs that are
    to meet (`planning/meeting.py`) end a slice at one frontier."""

    @property
    def grows(self) -> bool:
        """Whether columns were inferred, so that new fields of records become columns."""
        return False

    @abstractmethod
    def live_pin(self, loaded: LoadedConfig, stream: str, trigger: int) -> LivePin:
        """What the manifest keeps: enough to read the log, but no secret. Driver, planning.

        ``trigger`` is the pause between slices in µs. ``format`` of the pin says the columns of a
        log that has no archive.
        """

    def pin(
        self, loaded: LoadedConfig, described: SourcePin, begin: Beginning | None, trigger: int
    ) -> SourcePin:
        """The pin of a source that is read live; refuses what the log cannot do. Planning."""
        live = self.live_pin(loaded, described.stream, trigger)
        return replace(described, live=live)

    @abstractmethod
    def open(self, loaded: LoadedConfig, pin: SourcePin, catalog: Catalog | None = None) -> Log:
        """The log as the driver sees it. Connects when it is asked something, not before."""

    def settings(self, loaded: LoadedConfig, stream: str) -> dict[str, Json]:
        """What slices and readers need beside the pin. May be secret: it is written nowhere."""
        return {}

    @classmethod
    @abstractmethod
    def slices(cls, place: SlicesPlace) -> LogSlices:
        """The slices of a run, in the process beside Spark's JVM and in the driver."""

    @classmethod
    def show(cls, pin: LivePin) -> str:
        """The log in the words of a plan."""
        return cls.shown.format(kind=pin.kind, location=pin.location)

    @classmethod
    def show_positions(cls, positions: Json) -> str:
        """Positions in a line of a plan: ``0: 17, 1: 4``."""
        if isinstance(positions, dict):
            return ", ".join(f"{part}: {at}" for part, at in positions.items())
        return "" if positions is None else str(positions)

    @classmethod
    def offsets(cls, positions: Json) -> dict[int, int]:
        """The first offset to read by partition. Only of logs that `archive run` can follow."""
        raise NotImplementedError(f"{cls.__name__} has no partitions")

    @classmethod
    def recovered(cls, positions: Json | None) -> Json | None:
        """Where a run goes on in the log that recovers a lost one, whose last stamp has positions.

        None: it is not there yet when history is read up to the stamp, but reads on in history.
        """
        return positions


class Log(ABC):
    """A live log as the driver sees it, with what was seen when it was last looked at."""

    def __init__(self, pin: SourcePin) -> None:
        assert pin.live is not None
        self.pin, self.live = pin, pin.live

    @property
    def where(self) -> str:
        """The stream, for errors."""
        return f"stream {self.pin.stream}"

    @abstractmethod
    def look(self) -> None:
        """Look at the log as it is now. Raises :class:`LogAway`.

        Comes before the questions of where a run begins and of the seam; others look themselves.
        """

    def look_now(self) -> None:
        """Look at the log while a run is planned: here a log that is away is an error."""
        try:
            self.look()
        except LogAway as away:
            raise SourceError(
                f"the log does not answer: {away}", where=self.where, fix="check live: in the YAML"
            ) from None

    @property
    def identity(self) -> str | None:
        """What tells the log from another one of the same name; None if nothing does."""
        return None

    @abstractmethod
    def first_frontier(self, begin: Beginning, clock: int) -> int:
        """The frontier (µs) of a run that begins with the log's first row, or with its end.

        ``clock`` (µs) was read before the source was pinned.
        """

    @abstractmethod
    def first_positions(self, begin: Beginning, frontier: int) -> Json:
        """The positions at which a run begins whose sources all begin at this frontier."""

    def seam(self, reached: Mapping[int, ArchiveProgress], clock: int) -> HistoryPhase:
        """History up to its end in the pinned snapshot of the archive; the log goes on there.

        ``reached`` is what the snapshot says of the log; empty if it says nothing.
        """
        raise PlanError(
            "where history ends in this log nobody says, so there is no seam",
            where=self.where,
            fix="leave --from out",
        )

    def require_seam(self, phase: HistoryPhase) -> None:
        """Refuse a log that has lost rows after the archive's end: the run would have a gap."""
        del phase

    def check_beside(self, streams: int) -> None:
        """Refuse a log that cannot be read beside the other streams of a run; there are so many."""
        del streams

    def risks(self, source: str) -> Iterable[str]:
        """Warnings about the log's settings, for the plan. A log that is away is no error here."""
        return ()

    def why_behind(self, source: str) -> Iterable[str]:
        """Why rows may come behind the clock, and what to do. For `status`, if rows have done so.

        It must answer at once: a log that may be away and waited for says nothing.
        """
        return ()

    def complete(self) -> int | None:
        """The time (µs) up to which the log says that it is complete; None if it says nothing."""
        return None

    def next_times(self, moment: int, parts: list[str]) -> dict[str, int]:
        """When the first rows at or after a moment came (µs), by part as in `Lag.rows`.

        Asked beside the batches, for `status`. Parts of which it is not known are left out.
        """
        return {}


@dataclass(frozen=True)
class SlicesPlace:
    """The source and the run whose slices are decided, and what that takes."""

    run: Path
    source: str
    pin: SourcePin
    schema: pa.Schema  # the source's columns
    settings: Mapping[str, Json]  # see LogHome.settings
    catalog: Mapping[str, str]  # the properties of the project's catalog
    kept: int = 10  # so many batches can be repeated


class LogSlices(ABC):
    """The slices of one live log of one run: decided once, then a function of their offsets."""

    has_own_floor: ClassVar[bool] = False
    """Whether the reader says itself which rows came too late to be exact. Else those did whose
    ingest time lies before their slice."""

    def __init__(self, place: SlicesPlace) -> None:
        assert place.pin.live is not None
        self.run, self.source = place.run, place.source
        self.pin, self.live, self.schema = place.pin, place.pin.live, place.schema

    def decide(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Where the slice after ``start`` ends, or None if it cannot be said yet.

        ``widest`` is its greatest length in µs, ``rate`` the rows per second that are allowed. Not
        before the trigger's pause is over, however often Spark asks; a log that is away is waited
        for. Whoever calls writes the decision down; an earlier one may hold instead.
        """
        if not is_due(self.run, self.source, self.live.trigger):
            return None
        try:
            return self.find_end(start, widest, rate)
        except LogAway as away:
            write_waiting(self.run, self.source, start.frontier, str(away))
            return None

    @abstractmethod
    def find_end(self, start: Offset, widest: int, rate: int | None) -> Offset | None:
        """Look at the log, and :meth:`tell` what was seen. Raises :class:`LogAway`.

        The end is no later than ``widest`` allows, unless the log's `ends_anywhere` is False.
        """

    def prove(self, start: Offset) -> None:
        """Before a slice is read: the log must be the one that it was decided in.

        A driver that died may have left a batch to repeat, whose offsets nobody looks at again.
        """
        del start

    @abstractmethod
    def share(
        self, start: Offset, end: Offset, tasks: int
    ) -> tuple[PieceReader, list[list[Piece]]]:
        """What reads a decided slice, and its pieces for at most so many tasks; at least one list.

        Of a log that `archive run` follows, a piece's handle is (partition, first offset, end).
        """

    def budget(self, rate: int | None) -> int:
        """About how many rows a slice may have."""
        if rate is None:
            return self.live.max_rows
        return max(1, min(self.live.max_rows, round(rate * self.live.trigger / 1e6)))

    def tell(self, lag: Lag) -> None:
        """Tell `status` where the source stands."""
        write_lag(self.run, self.source, lag)


def home_of(pin: LivePin) -> type[LogHome]:
    """The kind of a pinned log."""
    found: type[LogHome] = LOGS.find(pin.kind)
    return found


def live_home(loaded: LoadedConfig, stream: str) -> LogHome:
    """The live home of a stream; the tail of its archive, if it names no other and has one."""
    found = loaded.config.streams[stream]
    if isinstance(found.live, LogHome):
        return found.live
    kind = None if found.archive is None else found.archive.type
    if kind in LOGS.names() and LOGS.find(kind).reads_archive:
        tail: LogHome = LOGS.find(kind)(type=kind)
        return tail
    raise PlanError(
        "the stream has no live: home"
        + (
            f", and the growing end of its archive (type {kind}) cannot be followed" if kind else ""
        ),
        where=f"stream {stream}",
        fix="give it live: {type: kafka, …} or {type: files, …}, or an Iceberg archive, whose tail "
        "is read (docs/live.md)",
    )


def open_log(loaded: LoadedConfig, pin: SourcePin, catalog: Catalog | None = None) -> Log:
    """The log of a source."""
    return live_home(loaded, pin.stream).open(loaded, pin, catalog)

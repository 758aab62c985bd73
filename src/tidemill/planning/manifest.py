"""What a run decided before it started. A restart reads it and decides nothing again."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from tidemill.config.pins import Check, SinkPin
from tidemill.errors import RunError
from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.code.params import Param
from tidemill.planning.code.shapes import FoldShape
from tidemill.planning.cuts import Cut, Delays
from tidemill.types import FOREVER_MICROS, Mode, TimeRange, from_micros

VERSION: Final = 2


@dataclass(frozen=True)
class LivePin(JsonValue):
    """The live home of a source: where it begins, and how it is read. Holds no secret."""

    kind: str  # the YAML's type of the log
    location: str  # its name: a topic, a table
    slack: int  # µs the frontier stays behind the clock
    max_rows: int  # in one slice, about
    trigger: int  # µs between slices, at least
    topic: str | None = None  # the log's identity, a topic's id: another one is another log
    format: dict[str, Any] = field(default_factory=dict)  # fields of records.decoding.Format
    own: dict[str, Any] = field(default_factory=dict)  # what only this kind of log understands


@dataclass(frozen=True)
class ArchivePin(JsonValue):
    """What a run has fixed of an archive: which one, and which state of it.

    ``facts`` are the connector's own: what it needs to find that very state again, as JSON. The
    class that ``kind`` names reads them (`config.archive.ARCHIVES`); nobody else does.
    """

    kind: str
    location: str  # the table's name, or the folder's URI
    snapshot: int | None = None  # or version; None: the archive has none, or was empty
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TablePin(JsonValue):
    """A reference table of a run: its state when the run was planned, and how it is read.

    The rows themselves are kept in the run's folder (`runfolder.decided_versions`).
    """

    state: ArchivePin
    section: dict[str, Any]  # of the YAML, as it was then
    rows: int = 0
    bytes: int = 0  # of the table's files


@dataclass(frozen=True)
class CatchUp(JsonValue):
    """How a live run catches up instances whose period began before they came."""

    gather: int  # µs for which it waits for more of them
    rate: int | None = None  # rows per second, that it reads at most


@dataclass(frozen=True)
class InstancesPin(JsonValue):
    """The instances of a run: where they come from, their columns, and which the run begins with.

    The instances themselves are kept in the run's folder (`runfolder.decided_versions`), under the
    name of the argument.
    """

    argument: str  # of the pipeline's code
    table: TablePin
    id: str  # the columns of the id and of the period
    start: str
    end: str
    columns: dict[str, str]  # the types of all columns
    catch_up: CatchUp
    ids: tuple[str, ...] = ()  # of the instances that the first batch sees, as text


@dataclass(frozen=True)
class HistoryPhase(JsonValue):
    """A stretch of a source's history that a run reads before it goes on live."""

    seam: int  # its end: the archive's frontier, µs
    archive: ArchivePin | None = None
    positions: Any = None  # where the live log goes on, in the log's own JSON
    topic: str | None = None  # the identity of the log that these are of, if it is known
    boundaries: tuple[int, ...] = ()  # the source's own; without them, those of all sources


@dataclass(frozen=True)
class SourceTimes(JsonValue):
    """The two times of a source's rows, and how far they may lie apart (µs)."""

    event_time: str  # a column, and so is the next
    ingest_time: str
    lateness: int = 0
    skew: int = 0
    zone: str = "UTC"


@dataclass(frozen=True)
class SourceRows(JsonValue):
    """Which rows and columns of a source are read, and in which order."""

    columns: tuple[str, ...] = ()
    partition: str | None = None  # the column of a row's position in the log, and so is the next
    offset: str | None = None
    order: str = "any"
    meta: bool = False
    where: str | None = None
    for_archive: bool = False  # no verdict: every record is a row


@dataclass(frozen=True)
class SourcePin(JsonValue):
    """One source as a run reads it, for the life of the run."""

    stream: str
    archive: ArchivePin | None  # None: a log without history
    times: SourceTimes
    rows: SourceRows = field(default_factory=SourceRows)
    live: LivePin | None = None
    phase: HistoryPhase | None = None  # where the live part begins; None: there is only history

    @property
    def location(self) -> str:
        """Where the rows are, as people are told: the archive, or the log that has none."""
        home = self.archive or self.live
        return "" if home is None else home.location

    @property
    def snapshot(self) -> int | None:
        """The state of the archive that is read."""
        return None if self.archive is None else self.archive.snapshot


@dataclass(frozen=True)
class CarriedState(JsonValue):
    """The state of folds with which a run begins: that of another run after a batch."""

    run: str
    batch: int


@dataclass(frozen=True)
class RetriedRows(JsonValue):
    """The rows at which the code of another run failed, and which this run reads alone."""

    run: str
    table: str  # the dead table that has them
    offsets: dict[str, dict[str, tuple[int, ...]]]  # by source and partition

    def __contains__(self, row: tuple[str, int, int]) -> bool:
        """Whether it has the row of this source, partition and offset."""
        source, partition, offset = row
        return offset in self.offsets.get(source, {}).get(str(partition), ())

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(len(each) for found in self.offsets.values() for each in found.values())


@dataclass(frozen=True)
class ParentRun(JsonValue):
    """The live run for which this one catches up a cohort of instances, and meets it."""

    run: str
    cohort: int


@dataclass(frozen=True)
class Origin(JsonValue):
    """What a run begins with of another run; most begin with nothing."""

    recovers: str = ""  # the run, lost or upgraded, that this one goes on for
    upgrades: bool = False  # that run is whole, and goes on itself until this one commits
    carried: CarriedState | None = None
    retries: RetriedRows | None = None
    parent: ParentRun | None = None


@dataclass(frozen=True)
class RunIdentity(JsonValue):
    """Which run it is, and what was asked for."""

    run: str
    pipeline: str
    mode: str
    created: int  # the run's frozen 'now', µs
    name: str | None = None  # by which the run was begun; the registry says whose it is now
    asked: dict[str, Any] = field(default_factory=dict)  # with which options; {}: not known
    risks: tuple[str, ...] = ()  # what its plan warned of
    origin: Origin = field(default_factory=Origin)
    instances: InstancesPin | None = None  # which it computes; None: the pipeline has none


@dataclass(frozen=True)
class InputNeeds(JsonValue):
    """How far from its time the input of an output row may lie (µs); None: it is not known."""

    warm_up: int | None = None  # before it
    look_ahead: int | None = None  # after it
    settles: dict[str, int] = field(default_factory=dict)
    """By output of a live run: so long after a time of it no row of that time comes any more.

    It counts from the watermark. An output of which it is not known is left out.
    """


@dataclass(frozen=True)
class RunTimes(JsonValue):
    """The range of the output, and how the sources go through the time of their input (µs)."""

    output: tuple[int, int]
    boundaries: tuple[int, ...]
    ends: bool = True  # has a planned end; a live run has none
    misalignment: int = 0  # a source may run so far ahead of another; 0: boundaries see to it
    steps: tuple[dict[str, int], ...] = ()  # frontiers at which sources wait for one another
    rate: int | None = None  # rows per second, at most
    yields_to: str | None = None  # a live run: while its lag grows, this one slows down
    needs: InputNeeds = field(default_factory=InputNeeds)

    @property
    def frontiers(self) -> tuple[int, ...]:
        """The offsets a source goes through: the end of the last slice is the end of all."""
        if not self.ends:
            return self.boundaries
        return (*self.boundaries[:-1], FOREVER_MICROS)

    @property
    def range(self) -> TimeRange:
        """The range of the output."""
        return TimeRange(from_micros(self.output[0]), from_micros(self.output[1]))


@dataclass(frozen=True)
class CodePin(JsonValue):
    """The pipeline's code, and what was found out about it."""

    is_there: bool = True  # False: rows go to the sinks as they are, output by source
    fingerprint: str = ""
    behaviour: tuple[str, ...] = ()  # what the code does, see `planning.code.behaviour`
    settings: dict[str, str] | None = None  # Spark's, that change what code means; None: not known
    folds: dict[str, FoldPin] = field(default_factory=dict)
    shapes: dict[str, FoldShape] = field(default_factory=dict)  # of the folds' state
    spare: int = 0  # µs by which Spark's watermark is held back for folds in front of it
    event_range_at_source: bool = False
    params: dict[str, Param] = field(default_factory=dict)  # the values it is called with

    @property
    def catching(self) -> tuple[str, ...]:
        """The folds whose failed rows go to the dead table."""
        return tuple(name for name, pin in self.folds.items() if pin.catches)


@dataclass(frozen=True)
class Outputs(JsonValue):
    """Where rows go."""

    sinks: dict[str, SinkPin]
    late_table: str = ""
    dead_table: str = ""
    discard: dict[str, Cut] = field(default_factory=dict)  # by place: it has what comes before
    inherited: int = 0  # rows of the lost run that came behind the clock


@dataclass(frozen=True)
class Resources(JsonValue):
    """Into how many parts the work is divided, and how much of the past is kept."""

    parallelism: int
    shuffles: int
    buckets: int = 1  # of a fold's keys
    keep_batches: int = 10


@dataclass(frozen=True)
class Manifest(JsonValue):
    """The decisions of a run. Written once, before the run starts."""

    identity: RunIdentity
    times: RunTimes
    sources: dict[str, SourcePin]
    outputs: Outputs
    resources: Resources
    code: CodePin = field(default_factory=CodePin)
    expect: tuple[Check, ...] = ()
    tables: dict[str, TablePin] = field(default_factory=dict)
    version: Literal[2] = VERSION

    @property
    def run(self) -> str:
        """The run's id."""
        return self.identity.run

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.identity.pipeline

    @property
    def code_digest(self) -> str:
        """What the code and the filters do, in a few letters; empty where there is no code."""
        if not self.code.behaviour:
            return ""
        filters = [[name, pin.rows.where] for name, pin in sorted(self.sources.items())]
        told = json.dumps([self.code.behaviour, filters])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def instances(self) -> InstancesPin | None:
        """The instances that the run computes; None: its pipeline has none."""
        return self.identity.instances

    @property
    def kept(self) -> tuple[int, int] | None:
        """Only rows with a time in this range are kept of what the code gives; None: all of them.

        Instances are not cut: pairing has cut their input, and a window that begins before an
        instance's period holds only rows of the period.
        """
        return self.times.output if self.instances is None else None

    @property
    def needed_input(self) -> int | None:
        """The ingest time (µs) up to which a backfill's range needs input; None: it has no end."""
        return self.times.output[1] + self._after if self.times.ends else None

    @property
    def read_input(self) -> int | None:
        """The ingest time (µs) up to which a backfill could read all of the input that it needs.

        What comes in after the run's plan is not in the archives' states that the run has pinned.
        """
        needed = self.needed_input
        return None if needed is None else min(needed, self.identity.created)

    @property
    def complete_output(self) -> tuple[int, int]:
        """The part of the output's range for which a backfill had all input."""
        low, high = self.times.output
        read = self.read_input
        return low, high if read is None else max(low, min(high, read - self._after))

    @property
    def _after(self) -> int:
        """By how much later the input of an output row may come (µs)."""
        known = self.times.needs.look_ahead
        lateness = max((pin.times.lateness for pin in self.sources.values()), default=0)
        return (0 if known is None else known) + lateness

    @property
    def delays(self) -> Delays:
        """How far Spark's watermark stays behind the frontiers."""
        lateness = {name: pin.times.lateness for name, pin in self.sources.items()}
        return Delays(lateness, self.code.spare)

    @property
    def aside(self) -> tuple[int, int] | None:
        """Ingest times of the late and dead rows that the run keeps; None: of all that it reads.

        Tables of its own get every row. Tables that other runs write too get the rows of the run's
        range and no others, or those of a warm-up would be there once for every run.
        """
        is_own = self.times.ends and self.run in self.outputs.late_table
        return None if is_own else self.times.output

    def as_child(self, parent: "Manifest", cohort: int, ids: tuple[str, ...]) -> "Manifest":
        """The manifest of a run that catches a cohort up for a live run, whose rows it writes.

        It has all from the live run that decides what comes of a row: code, times of sources,
        buckets. Late and dead rows of the stream are the live run's to tell, and pairing cuts the
        output.
        """
        sources = {
            name: replace(pin, times=parent.sources[name].times, rows=parent.sources[name].rows)
            for name, pin in self.sources.items()
        }
        origin = Origin(parent=ParentRun(parent.run, cohort))
        instances = parent.instances and replace(parent.instances, ids=ids)
        return replace(
            self,
            identity=replace(
                self.identity, mode=Mode.CATCH_UP, name=None, asked={}, origin=origin,
                instances=instances,
            ),
            times=replace(
                self.times, output=(0, FOREVER_MICROS), yields_to=parent.run,
                rate=None if instances is None else instances.catch_up.rate,
                misalignment=parent.times.misalignment, needs=parent.times.needs,
            ),
            sources=sources,
            outputs=Outputs(parent.outputs.sinks),
            resources=parent.resources,
            code=replace(parent.code, event_range_at_source=False),
            expect=(),
        )  # fmt: skip

    def begun_as(self, name: str | None, asked: dict[str, Any]) -> "Manifest":
        """The manifest with the name and the options with which the run is begun."""
        return replace(self, identity=replace(self.identity, name=name, asked=asked))

    def to_json(self) -> str:
        """Stable, readable text."""
        return dump_json(self, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """The inverse of :meth:`to_json`; refuses what another version wrote."""
        try:
            return load_json(cls, text)
        except ValueError as error:
            _refuse_other_version(text)
            raise RunError(
                f"the manifest is damaged: {error}",
                fix="restore it from a copy, or start a new backfill",
            ) from None


def _refuse_other_version(text: str) -> None:
    try:
        found = json.loads(text).get("version")
    except (ValueError, AttributeError):
        return
    if found != VERSION:
        raise RunError(
            f"the manifest has version {found}, this Tidemill reads {VERSION}",
            fix="resume the run with the Tidemill that started it",
        )


def next_boundary(boundaries: tuple[int, ...], frontier: int, released: int | None) -> int:
    """The frontier after this one: the next boundary, but not beyond what is released.

    Stays where it is when nothing is released. Sources that were held at different boundaries
    realign by themselves, because every one takes one boundary at a time.
    """
    following = next((boundary for boundary in boundaries if boundary > frontier), frontier)
    if released is None or following <= released:
        return following
    return frontier

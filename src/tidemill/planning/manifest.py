"""What a run decided before it started. A restart reads it and decides nothing again."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from tidemill.config.pins import SinkPin
from tidemill.errors import RunError
from tidemill.planning.chains import FoldPin
from tidemill.planning.cuts import Cut, Delays
from tidemill.types import FOREVER_MICROS, TimeRange, from_micros

VERSION = 1


@dataclass(frozen=True)
class LivePin:
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
class ArchivePin:
    """What a run has fixed of an archive: which one, and which state of it.

    ``facts`` are the connector's own: what it needs to find that very state again, as JSON. The
    class that ``kind`` names reads them (`config.archive.ARCHIVES`); nobody else does.
    """

    kind: str
    location: str  # the table's name, or the folder's URI
    snapshot: int | None = None  # or version; None: the archive has none, or was empty
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HistoryPhase:
    """A stretch of a source's history that a run reads before it goes on live."""

    seam: int  # its end: the archive's frontier, µs
    archive: ArchivePin | None = None
    positions: Any = None  # where the live log goes on, in the log's own JSON
    topic: str | None = None  # the identity of the log that these are of, if it is known
    boundaries: tuple[int, ...] = ()  # the source's own; without them, those of all sources

    @property
    def snapshot(self) -> int | None:
        """The state of the archive that is read."""
        return None if self.archive is None else self.archive.snapshot


@dataclass(frozen=True)
class SourcePin:
    """One source as a run reads it, for the life of the run."""

    stream: str
    archive: ArchivePin | None  # None: a log without history
    event_time: str
    ingest_time: str
    lateness: int
    skew: int
    columns: tuple[str, ...]
    zone: str = "UTC"
    partition: str | None = None
    offset: str | None = None
    order: str = "any"
    meta: bool = False
    where: str | None = None
    live: LivePin | None = None
    phase: HistoryPhase | None = None  # where the live part begins; None: there is only history
    for_archive: bool = False  # no verdict: every record is a row

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
class Manifest:
    """The decisions of a run. Written once, before the run starts."""

    run: str
    pipeline: str
    mode: str
    config: str
    fingerprint: str
    created: int
    output: tuple[int, int]
    boundaries: tuple[int, ...]
    sources: dict[str, SourcePin]
    sinks: dict[str, SinkPin]
    late_table: str
    dead_table: str
    parallelism: int
    shuffles: int
    event_range_at_source: bool = False
    rate: int | None = None
    expected_rows: int = 0
    folds: dict[str, FoldPin] = field(default_factory=dict)
    spare: int = 0  # µs by which Spark's watermark is held back for folds in front of it
    buckets: int = 1
    keep_batches: int = 10
    ends: bool = True  # has a planned end; a live run has none
    misalignment: int = 0  # µs a source may run ahead of another; 0: boundaries see to it
    steps: tuple[dict[str, int], ...] = ()  # frontiers at which sources wait for one another
    discard: dict[str, Cut] = field(default_factory=dict)  # by place: it has what comes before
    recovers: str = ""  # the lost run that this one goes on for
    inherited: int = 0  # rows of the lost run that came behind the clock
    name: str | None = None  # by which the run was begun; the registry says whose it is now
    asked: dict[str, Any] = field(default_factory=dict)  # with which options; {}: not known
    settings: dict[str, str] | None = None  # Spark's, that change what code means; None: not known
    behaviour: tuple[str, ...] = ()  # what the code does, see `planning.behaviour`
    code: bool = True  # False: rows go to the sinks as they are, output by source
    version: int = VERSION

    @property
    def code_digest(self) -> str:
        """What the code and the filters do, in a few letters; empty where there is no code."""
        if not self.behaviour:
            return ""
        filters = [[name, pin.where] for name, pin in sorted(self.sources.items())]
        return hashlib.sha256(json.dumps([self.behaviour, filters]).encode()).hexdigest()[:16]

    @property
    def frontiers(self) -> tuple[int, ...]:
        """The offsets a source goes through: the end of the last slice is the end of all."""
        if not self.ends:
            return self.boundaries
        return (*self.boundaries[:-1], FOREVER_MICROS)

    @property
    def delays(self) -> Delays:
        """How far Spark's watermark stays behind the frontiers."""
        return Delays({name: pin.lateness for name, pin in self.sources.items()}, self.spare)

    @property
    def range(self) -> TimeRange:
        """The range of the output."""
        return TimeRange(from_micros(self.output[0]), from_micros(self.output[1]))

    @property
    def aside(self) -> tuple[int, int] | None:
        """Ingest times of the late and dead rows that the run keeps; None: of all that it reads.

        Tables of its own get every row. Tables that other runs write too get the rows of the run's
        range and no others, or those of a warm-up would be there once for every run.
        """
        return None if self.ends and self.run in self.late_table else self.output

    @property
    def created_at(self) -> datetime:
        """The run's frozen 'now'."""
        return from_micros(self.created)

    def to_json(self) -> str:
        """Stable, readable text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """The inverse of :meth:`to_json`; refuses what another version wrote."""
        try:
            return cls._from_value(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"the manifest is damaged: {error}",
                fix="restore it from a copy, or start a new backfill",
            ) from None

    @classmethod
    def _from_value(cls, value: dict[str, Any]) -> "Manifest":
        if value.get("version") != VERSION:
            raise RunError(
                f"the manifest has version {value.get('version')}, this Tidemill reads {VERSION}",
                fix="resume the run with the Tidemill that started it",
            )
        sources = {name: _source_pin(pin) for name, pin in value["sources"].items()}
        sinks = {
            name: SinkPin(**{**pin, "key": tuple(pin["key"])})
            for name, pin in value["sinks"].items()
        }
        return cls(
            **{
                **value,
                "folds": {name: FoldPin(**pin) for name, pin in value.get("folds", {}).items()},
                "sources": sources,
                "sinks": sinks,
                "output": tuple(value["output"]),
                "boundaries": tuple(value["boundaries"]),
                "steps": tuple(value.get("steps", ())),
                "behaviour": tuple(value.get("behaviour", ())),
                "discard": {
                    name: Cut(cut["frontiers"], cut["watermark"])
                    for name, cut in value.get("discard", {}).items()
                },
            }
        )


def phase_from(value: dict[str, Any]) -> HistoryPhase:
    """A phase from its JSON."""
    return HistoryPhase(
        **{
            **value,
            "archive": _archive_pin(value.get("archive")),
            "boundaries": tuple(value.get("boundaries", ())),
        }
    )


def _archive_pin(value: dict[str, Any] | None) -> ArchivePin | None:
    return None if value is None else ArchivePin(**value)


def _source_pin(value: dict[str, Any]) -> SourcePin:
    live, phase = value.get("live"), value.get("phase")
    return SourcePin(
        **{
            **value,
            "columns": tuple(value["columns"]),
            "archive": _archive_pin(value["archive"]),
            "live": None if live is None else LivePin(**live),
            "phase": None if phase is None else phase_from(phase),
        }
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

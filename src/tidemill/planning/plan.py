"""The plan of a run: everything it would do, as values. `plan` shows it, a run carries it out."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Literal

from tidemill.config.pins import Check
from tidemill.planning.cards import card, one_line
from tidemill.planning.code.analysis import PipelineFacts
from tidemill.planning.code.params import Param
from tidemill.planning.instances.expecting import InstancesPlan
from tidemill.planning.manifest import SourcePin, TablePin
from tidemill.planning.ranges import Margins
from tidemill.planning.statistics import Share, SourceStatistics
from tidemill.types import TimeRange, from_micros, show_duration, show_instant

_UNPACKED = 6
"""Bytes in memory per byte of a compressed file: measured on the playback app, rounded up."""
_BASE_MEMORY = 1_500_000_000
NOW: Final = "now"


def _shown(length: timedelta) -> str:
    """A distance, which may also be against the direction it is measured in."""
    return f"-{show_duration(-length)}" if length < timedelta() else show_duration(length)


class Beginning(StrEnum):
    """Where a live run begins."""

    HISTORY = "history"  # with the archive, from the range's start
    EARLIEST = "earliest"  # with the log's first row
    LATEST = "latest"  # with the log's end


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for. Times have a zone; the plan decides what is None."""

    pipeline: str
    range: TimeRange
    slice: timedelta | None = None
    slice_rows: int | None = None
    regions: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    warm_up: timedelta | None = None
    look_ahead: timedelta | None = None
    rate: int | None = None
    into: str | None = None
    allow_empty: bool = False
    live: Beginning | None = None  # where a live run begins; None: a backfill
    trigger: timedelta | None = None
    append: bool = False  # write into a table that has rows of this range, or a live writer
    yield_to: str | None = None  # the live run, by name or id, to which a backfill gives way
    params: tuple[tuple[str, Any], ...] = ()  # values of parameters, before those of the YAML
    emit_from: datetime | Literal["now"] | None = None  # history before it makes state, no output
    instances: tuple[str, ...] = ()  # the ids of those to compute; none: all of the range
    state: str | None = None  # a file with the state and the place in the log to begin with

    def output(self, now: datetime) -> TimeRange:
        """The times of the rows that are written; ``now`` is the time of the plan."""
        if self.emit_from is None:
            return self.range
        return TimeRange(now if self.emit_from == NOW else self.emit_from, self.range.end)


@dataclass(frozen=True)
class SlicePlan:
    """One slice: a half-open range of ingest time, with the expected rows of each source."""

    start: datetime
    end: datetime
    shares: dict[str, Share]

    def to_json(self) -> dict[str, Any]:
        """As ``plan --json`` prints it."""
        return {
            "from": show_instant(self.start),
            "to": show_instant(self.end),
            "rows": {name: share.rows for name, share in self.shares.items()},
            "bytes": {name: share.bytes for name, share in self.shares.items()},
        }


@dataclass(frozen=True, repr=False)
class RunPlan:
    """A plan that can be shown or carried out, unchanged."""

    request: RunRequest
    created: datetime
    fingerprint: str
    facts: PipelineFacts
    margins: Margins
    input: TimeRange
    boundaries: tuple[int, ...]
    pins: dict[str, SourcePin]
    statistics: dict[str, SourceStatistics]
    risks: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # what would make the run quicker; the rows stay the same
    lateness: dict[str, str] = field(default_factory=dict)
    expect: tuple[Check, ...] = ()
    settles: dict[str, int] = field(default_factory=dict)  # see `manifest.RunTimes`
    params: dict[str, Param] = field(default_factory=dict)
    tables: dict[str, TablePin] = field(default_factory=dict)
    instances: InstancesPlan | None = None

    def __repr__(self) -> str:
        """One line; ``to_json`` has everything."""
        facts = self._facts()
        facts["risks"] = str(len(self.risks))
        return one_line("RunPlan", self.request.pipeline, facts)

    def _repr_html_(self) -> str:
        return card(f"Plan of {self.request.pipeline}", self._facts())

    def _facts(self) -> dict[str, str]:
        return {
            "output": str(self.output),
            "slices": f"{len(self.boundaries) - 1:,}",
            "rows": f"{self.rows:,}",
            "memory": f"{self.memory / 1e9:.1f} GB",
            "risks": "; ".join(self.risks) or "none",
        }

    @property
    def output(self) -> TimeRange:
        """The times of the rows that are written; of instances, the range of their periods."""
        if self.instances is not None:
            return self.instances.range
        return self.request.output(self.created)

    @property
    def slices(self) -> list[SlicePlan]:
        """The slices in order."""
        shares = {name: found.shares(self.boundaries) for name, found in self.statistics.items()}
        return [
            SlicePlan(
                from_micros(low),
                from_micros(high),
                {name: found[index] for name, found in shares.items()},
            )
            for index, (low, high) in enumerate(pairwise(self.boundaries))
        ]

    @property
    def rows(self) -> int:
        """Rows expected in all slices of all sources."""
        return sum(share.rows for piece in self.slices for share in piece.shares.values())

    @property
    def memory(self) -> int:
        """Expected memory in bytes: what Spark always needs, plus the largest slice unpacked."""
        sizes = [sum(share.bytes for share in piece.shares.values()) for piece in self.slices]
        return _BASE_MEMORY + _UNPACKED * max(sizes, default=0)

    def to_json(self) -> dict[str, Any]:
        """One object, as ``plan --json`` prints it."""
        return {
            "pipeline": self.request.pipeline,
            "from": show_instant(self._range.start),
            "to": show_instant(self._range.end),
            **self._emission(),
            **({} if self.instances is None else {"instances": self.instances.to_json()}),
            "params": {name: pin.value for name, pin in self.params.items()},
            "input": {
                "from": show_instant(self.input.start),
                "to": show_instant(self.input.end),
                "warm_up": show_duration(self.margins.warm_up),
                "look_ahead": show_duration(self.margins.look_ahead),
                "because": self.margins.reason,
                "needs": [
                    {
                        "operator": need.operator,
                        "before": _shown(need.before),
                        "after": _shown(need.after),
                        "because": need.because,
                    }
                    for need in self.margins.needs
                ],
            },
            **self._seams(),
            "snapshots": {pin.stream: pin.snapshot for pin in self.pins.values()},
            "tables": {
                name: {
                    "at": pin.state.location,
                    "snapshot": pin.state.snapshot,
                    "rows": pin.rows,
                    "bytes": pin.bytes,
                }
                for name, pin in self.tables.items()
            },
            "slices": [piece.to_json() for piece in self.slices],
            "rows": self.rows,
            "memory": self.memory,
            "columns": {name: list(pin.rows.columns) for name, pin in self.pins.items()},
            "category": self.facts.category,
            "operators": list(self.facts.stateful),
            "late": self.lateness,
            "expect": [str(check) for check in self.expect],
            "risks": list(self.risks),
            "advice": list(self.advice),
        }

    @property
    def _range(self) -> TimeRange:
        return self.request.range if self.instances is None else self.instances.range

    def _emission(self) -> dict[str, Any]:
        """From which time on rows are written, where that is not the range's start."""
        if self.request.emit_from is None:
            return {}
        return {"emit_from": show_instant(self.output.start)}

    def _seams(self) -> dict[str, Any]:
        """Where each source of a live run leaves history, and at which positions its log begins."""
        phases = {name: pin.phase for name, pin in self.pins.items() if pin.phase is not None}
        if not phases:
            return {}
        return {
            "seams": {
                name: {"at": show_instant(from_micros(phase.seam)), "positions": phase.positions}
                for name, phase in phases.items()
            }
        }

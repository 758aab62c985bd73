"""Compare the outputs of a run with production, with another table, or with another run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import PlanError, SinkError, TidemillError
from tidemill.review.comparing.comparison import Comparison, OutputComparison, instant
from tidemill.review.comparing.engine import Seen, compare_rows
from tidemill.review.comparing.evidence import gather
from tidemill.review.comparing.rules import Asked, Rules, make_rules
from tidemill.review.comparing.sides import Side, SideFinder, Sides, state_note
from tidemill.review.coverage import Coverage
from tidemill.runfolder.compared import ComparedOutput, write_compared
from tidemill.runfolder.folder import RunFolder

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry

_MUCH = 0.1
"""A part of the range that is worth a note if one side has no rows in it."""


@dataclass(frozen=True)
class CompareRequest:
    """What is asked of a comparison."""

    run: str
    with_: str | None = None  # a table or a run; None: production
    key: Sequence[str] | None = None  # None: the sink's; (): whole rows
    tolerance: Mapping[str, float] = field(default_factory=dict)  # by column, absolute
    ignore: Sequence[str] = ()
    outputs: Sequence[str] = ()  # (): all that can be read back

    @classmethod
    def of(cls, run: str, **options: Any) -> CompareRequest:
        """The request of these options, which are the fields by name."""
        return cls(run, **options)

    def asked(self, schemas: Iterable[pa.Schema]) -> Asked:
        """What is said of the columns of an output: names that other outputs have are left out."""
        known = {name for schema in schemas for name in schema.names}
        if len(self.outputs) == 1:
            return self._all()
        return Asked(
            None if self.key is None else tuple(self.key),
            {name: at for name, at in self.tolerance.items() if name in known},
            tuple(name for name in self.ignore if name in known),
        )

    def _all(self) -> Asked:
        key = None if self.key is None else tuple(self.key)
        return Asked(key, dict(self.tolerance), tuple(self.ignore))


def compare_run(loaded: LoadedConfig, registry: Registry, asked: CompareRequest) -> Comparison:
    """Compare; reads tables, and changes nothing but the note of it in the run's folder."""
    record = registry.get(asked.run)
    folder = RunFolder.of(loaded.home, record.run)
    manifest = folder.read_manifest()
    finder = SideFinder(loaded, registry, manifest)
    sides = list(finder.find(asked.with_, asked.outputs))
    found: list[OutputComparison] = []
    looked: list[ComparedOutput] = []
    _require_known(asked, sides)
    for each in sides:
        compared = _compare(finder, each, asked if len(sides) > 1 else _single(asked, each))
        found.append(compared)
        if each.is_production and each.span is not None:
            looked.append(_noted(compared, each.span))
    if looked:
        write_compared(folder, looked)
    notes = [*state_note(registry, manifest), *_part_note(finder, sides)]
    if manifest.instances is not None and looked:
        count = len(manifest.instances.ids)
        notes.append(f"the run has rows of {count} instances, production has those of all")
    skipped = [n for n in manifest.outputs.sinks if n not in {each.output for each in found}]
    if skipped and not asked.outputs:
        notes.append(f"not compared, their rows are not read back: {', '.join(skipped)}")
    return Comparison(record.run, manifest.pipeline, tuple(found), tuple(notes))


def _part_note(finder: SideFinder, sides: Sequence[Sides]) -> list[str]:
    """That the run read a part of the input that production's rows are made of."""
    coverage = Coverage(finder.loaded, finder.registry, finder.manifest)
    places = {each.there.place for each in sides if each.is_production}
    found = sorted({option for place in places for option in coverage.narrowed(place)})
    if not found:
        return []
    return [f"the run was made with {' and '.join(found)}, and production was not"]


def _single(asked: CompareRequest, sides: Sides) -> CompareRequest:
    """The request with its only output named, so that every unknown column is an error."""
    return CompareRequest(
        asked.run, asked.with_, asked.key, asked.tolerance, asked.ignore, (sides.output,)
    )


def _require_known(asked: CompareRequest, sides: Sequence[Sides]) -> None:
    """A column that no output has is an error, too, where there are several outputs."""
    known = {
        name
        for each in sides
        for side in (each.here, each.there)
        for name in side.view.columns.names
    }
    for name in (*asked.tolerance, *asked.ignore):
        if name not in known:
            raise PlanError(f"no output has a column {name!r}", fix=", ".join(sorted(known)))


def _compare(finder: SideFinder, sides: Sides, asked: CompareRequest) -> OutputComparison:
    here, there, pin = sides.here, sides.there, sides.pin
    rules = make_rules(
        here.view.columns,
        there.view.columns,
        asked.asked((here.view.columns, there.view.columns)),
        key=pin.key,
        time=pin.time,
        where=f"{here.place} and {there.place}",
    )
    folder = finder.loaded.home / "compare"
    folder.mkdir(parents=True, exist_ok=True)
    known = gather(finder, sides, rules)
    span = sides.span if pin.time is not None else None
    summary, ours, theirs = compare_rows(
        _rows(here, rules, span), _rows(there, rules, span), rules, known, folder
    )
    return OutputComparison(
        sides.output,
        here.place,
        there.place,
        (here.view.state, there.view.state),
        span,
        rules,
        summary,
        (*sides.notes, *_apart(rules), *known.notes, *_lacking(ours, theirs, span)),
    )


def _rows(
    side: Side, rules: Rules, span: tuple[int, int] | None
) -> Callable[[], Iterable[pa.RecordBatch]]:
    return partial(_told, side, rules, span)


def _told(side: Side, rules: Rules, span: tuple[int, int] | None) -> Iterable[pa.RecordBatch]:
    """The rows of a side; what fails while they are read says of which table they are."""
    try:
        yield from side.view.scan(rules.read, span)
    except TidemillError:
        raise
    except FileNotFoundError as error:
        raise SinkError(
            f"a file of the table is gone: {error}",
            where=side.place,
            fix="compare again; keep_snapshots: in the YAML keeps states longer that others "
            "replace",
        ) from None


def _apart(rules: Rules) -> list[str]:
    """The columns that were not compared."""
    sides = (("here", rules.only_here), ("there", rules.only_there))
    return [
        f"columns that are only {side}, and were not compared: {', '.join(names)}"
        for side, names in sides
        if names
    ]


def _lacking(here: Seen, there: Seen, span: tuple[int, int] | None) -> list[str]:
    """That one side has no rows in a part of the range where the other one has."""
    notes = []
    for side, mine, other in (("there", there, here), ("here", here, there)):
        if not other.rows or span is None:
            continue
        if not mine.rows:
            notes.append(f"there are no rows {side} in this range at all")
            continue
        if None in (mine.first, mine.last, other.first, other.last):
            continue
        much = _MUCH * ((other.last or 0) - (other.first or 0))
        if (mine.first or 0) - (other.first or 0) > much:
            notes.append(
                f"{side}, the first row of the range is of {instant(mine.first)}, on the other "
                f"side of {instant(other.first)}: rows before may be deleted, or were never there"
            )
        if (other.last or 0) - (mine.last or 0) > much:
            notes.append(
                f"{side}, the last row of the range is of {instant(mine.last)}, on the other "
                f"side of {instant(other.last)}: rows after may be deleted, or were never there"
            )
    return notes


def _noted(found: OutputComparison, span: tuple[int, int]) -> ComparedOutput:
    counts = found.summary
    return ComparedOutput(
        output=found.output,
        place=found.there,
        snapshot=found.states[1],
        shadow=found.states[0],
        span=span,
        equal=counts.equal,
        different=counts.different,
        only_here=counts.only_here,
        only_there=counts.only_there,
        match=found.match,
        at=time.time_ns() // 1_000,
    )

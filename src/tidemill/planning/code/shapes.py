"""What the state of a fold looks like, and whether another fold can go on with it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidemill.jsonvalue import JsonValue
from tidemill.types import show_duration

OPTIONAL = ("collect", "count", "max", "mean", "min", "n_unique", "sum")
"""Functions of aggregates whose state may be null: nothing was seen yet.

A first or a last value is found by its row's place, and a null has no place.
"""

_LENGTHS = ("empty_for", "every", "gap", "half", "size", "slack", "within")
"""Options of folds that are lengths of time in microseconds."""


@dataclass(frozen=True)
class AggregateShape(JsonValue):
    """One aggregate of a fold: what it computes, and in which columns of the state it does so."""

    function: str
    column: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True)
class FoldShape(JsonValue):
    """A fold's state: its columns with their types, and the options that give them a meaning."""

    kind: str
    keys: tuple[str, ...]
    time: str
    columns: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    aggregates: dict[str, AggregateShape] = field(default_factory=dict)

    def misfits(self, kept: "FoldShape") -> Iterator[str]:
        """Why this fold cannot go on with the state ``kept``, by column; nothing if it can."""
        if self.kind != kept.kind:
            yield f"it is {self.kind}, the state is of {kept.kind}"
            return
        if self.keys != kept.keys:
            yield f"its key is {_shown(self.keys)}, the state's is {_shown(kept.keys)}"
        for name in sorted({*self.options, *kept.options}):
            now, then = self.options.get(name), kept.options.get(name)
            if now != then:
                yield f"its {name} is {_option(name, now)}, the state's is {_option(name, then)}"
        yield from self._columns(kept)

    def added(self, kept: "FoldShape") -> list[str]:
        """The aggregates that the state has nothing of yet."""
        return [name for name in self.aggregates if name not in kept.aggregates]

    def _columns(self, kept: "FoldShape") -> Iterator[str]:
        for name in self.added(kept):
            if self.aggregates[name].function not in OPTIONAL:
                yield f"the aggregate {name!r} is new, and a {self.aggregates[name].function} "\
                    "value cannot begin in the middle"  # fmt: skip
        for name, now in self.aggregates.items():
            then = kept.aggregates.get(name)
            if then is not None and then != now:
                yield (f"the aggregate {name!r} is {_said(now)}, in the state it is {_said(then)}")
        new = {c for name in self.added(kept) for c in self.aggregates[name].columns}
        gone = {
            c for n, a in kept.aggregates.items() if n not in self.aggregates for c in a.columns
        }
        for column in sorted({*self.columns, *kept.columns} - new - (gone - {*self.columns})):
            found, was = self.columns.get(column), kept.columns.get(column)
            if found != was:
                yield (
                    f"the column {column!r} is {found or 'not there'}, in the state it is "
                    f"{was or 'not there'}"
                )


def _option(name: str, value: Any) -> str:
    """An option as people say it: lengths of time are kept as numbers of microseconds."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_option(key, each)}" for key, each in value.items())
    if name in _LENGTHS and isinstance(value, int) and not isinstance(value, bool):
        return show_duration(timedelta(microseconds=value)) if value % 1000 == 0 else f"{value} µs"
    return str(value)


def _shown(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) or "nothing"


def _said(shape: AggregateShape) -> str:
    return shape.function if shape.column is None else f"{shape.function} of {shape.column}"

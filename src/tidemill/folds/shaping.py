"""The shape of a fold's state, found from its bound options."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

from tidemill.folds.aggregates import Aggregate, Aggregates
from tidemill.folds.base import BoundFold
from tidemill.planning.code.shapes import AggregateShape, FoldShape

_COMMON = frozenset(each.name for each in fields(BoundFold))
_UNTOLD = object()


def shape_of(fold: BoundFold) -> FoldShape:
    """What another run must know to go on with the fold's state.

    Code of the user is no part of it: an upgrade is there to change it.
    """
    own = {each.name: getattr(fold, each.name) for each in fields(fold)}
    found = {name: _plain(value) for name, value in own.items() if name not in _COMMON}
    aggregates = next((v.each for v in own.values() if isinstance(v, Aggregates)), ())
    return FoldShape(
        kind=fold.kind,
        keys=tuple(fold.keys),
        time=fold.time,
        columns={field.name: str(field.type) for field in fold.state},
        options={
            "class": type(fold).__name__,
            **{name: value for name, value in found.items() if value is not _UNTOLD},
        },
        aggregates={each.name: _aggregate(each) for each in aggregates},
    )


def _aggregate(each: Aggregate) -> AggregateShape:
    return AggregateShape(each.function, each.column, tuple(part.name for part in each.parts))


def _plain(value: Any) -> Any:
    """A value as JSON has it; what is no plain value is not told."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple | list):
        each = [_plain(part) for part in value]
        return _UNTOLD if any(part is _UNTOLD for part in each) else each
    if is_dataclass(value) and not isinstance(value, type | Aggregates):
        parts = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        return {name: part for name, part in parts.items() if part is not _UNTOLD}
    return _UNTOLD

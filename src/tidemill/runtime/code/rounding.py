"""Find the aggregates that add up floating point numbers, by the types that Spark knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidemill.runtime.code.catalyst import scala_items

_FLOATING = ("double", "float")
_SMALL = ("tinyint", "smallint", "int")
"""Whole numbers whose sum a double holds exactly, up to millions of the largest values."""

_CHOOSING = frozenset(
    ("any_value", "first", "last", "max", "max_by", "min", "min_by", "mode", "percentile")
)
"""Aggregates that choose one of the values: they add nothing."""


def find_rounded(analysed: Any) -> tuple[str, ...]:
    """The aggregates of a plan whose last digits depend on the order of the rows, as SQL text."""
    return tuple(
        sorted({function.sql() for function in _aggregates(analysed) if _rounds(function)})
    )


def _aggregates(node: Any) -> Iterator[Any]:
    if node.nodeName() == "Aggregate":
        for expression in scala_items(node.expressions()):
            yield from _functions(expression)
    for child in scala_items(node.children()):
        yield from _aggregates(child)


def _functions(expression: Any) -> Iterator[Any]:
    if expression.nodeName() == "AggregateExpression":
        yield expression.aggregateFunction()
        return
    for child in scala_items(expression.children()):
        yield from _functions(child)


def _rounds(function: Any) -> bool:
    if function.dataType().simpleString() not in _FLOATING or function.prettyName() in _CHOOSING:
        return False
    added = [child.dataType().simpleString() for child in scala_items(function.children())]
    return not (function.prettyName() in ("avg", "try_avg") and added[0] in _SMALL)

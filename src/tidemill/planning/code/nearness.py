"""How far the times of two joined streams may lie apart, from the condition of the join."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import product

from tidemill.planning.code.placing import (
    Fields,
    Place,
    Root,
    SessionWindowError,
    Value,
    Values,
    evaluate,
    place,
)
from tidemill.planning.code.tree import Tree, build_tree

_LESS = ("LessThan", "LessThanOrEqual")
_GREATER = ("GreaterThan", "GreaterThanOrEqual")


def compared(condition: Tree, values: Values) -> Iterator[tuple[Place, Place]]:
    """Pairs of times of which the condition says that the first one is not after the second."""
    kind, sides = condition.kind, condition.children
    if kind == "And":
        for side in sides:
            yield from compared(side, values)
    elif kind == "Between":
        inner, low, high = (build_tree(condition.fields[k]) for k in ("input", "lower", "upper"))
        yield from _ordered(low, inner, values)
        yield from _ordered(inner, high, values)
    elif kind in _LESS:
        yield from _ordered(sides[0], sides[1], values)
    elif kind in _GREATER:
        yield from _ordered(sides[1], sides[0], values)
    elif kind == "EqualTo":
        yield from _ordered(sides[0], sides[1], values)
        yield from _ordered(sides[1], sides[0], values)
        yield from _equal_fields(sides, values)


def _ordered(early: Tree, late: Tree, values: Values) -> Iterator[tuple[Place, Place]]:
    """The pair of ``early <= late``, if both are times.

    ``u - t <= interval`` is no bound, although it says the same as ``u <= t + interval``: Spark
    does not understand it, so it keeps the rows of such a join for ever, and of a full outer join
    it never gives those without a partner.
    """
    pair = place(early, values), place(late, values)
    if pair[0] is not None and pair[1] is not None:
        yield pair[0], pair[1]


def _equal_fields(sides: tuple[Tree, ...], values: Values) -> Iterator[tuple[Place, Place]]:
    """Equal windows have equal bounds."""
    structs = [_known(side, values) for side in sides]
    fields = [struct.places if isinstance(struct, Fields) else () for struct in structs]
    for first, second in zip(*fields, strict=False):
        if first is not None and second is not None:
            yield first, second
            yield second, first


def _known(side: Tree, values: Values) -> Value | None:
    try:
        return evaluate(side, values)
    except SessionWindowError:
        return None


def closed(
    apart: Mapping[tuple[Root, Root], timedelta], roots: Iterable[Root]
) -> dict[tuple[Root, Root], timedelta]:
    """All that follows from distances: what is 1 h after what is 1 h after *a* is 2 h after it."""
    found, known = dict(apart), list(roots)
    for middle, first, last in product(known, repeat=3):
        if (first, middle) in found and (middle, last) in found:
            way = found[first, middle] + found[middle, last]
            found[first, last] = min(found.get((first, last), way), way)
    return found

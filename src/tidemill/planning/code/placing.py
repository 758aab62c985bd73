"""Place a computed time beside the time that it is computed from: ``ts + interval 5 minutes``.

A *root* is a time that rows have: an event time, a fold's time, the time of a group. A *place* says
within which distance of a root the value of an expression lies. An expression that is not known to
keep any distance (a UDF, a month, a text) has no place.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from tidemill.planning.code.lineage import time_struct, unwrap, window_size
from tidemill.planning.code.margin import Need
from tidemill.planning.code.tree import Tree
from tidemill.types import show_duration

Root = Hashable
"""Names a time that rows have."""
_ZERO = timedelta()
_TICK = timedelta(microseconds=1)  # times are whole µs: what is less than a minute is this less
_DAY = timedelta(days=1)
_ZONE = timedelta(hours=18)  # the furthest that a zone may lie from UTC
_UNITS = {
    **dict.fromkeys(("MICROSECOND",), timedelta(microseconds=1)),
    **dict.fromkeys(("MILLISECOND",), timedelta(milliseconds=1)),
    **dict.fromkeys(("SECOND",), timedelta(seconds=1)),
    **dict.fromkeys(("MINUTE",), timedelta(minutes=1)),
    **dict.fromkeys(("HOUR",), timedelta(hours=1)),
    **dict.fromkeys(("DAY", "DD", "DAYOFYEAR"), _DAY),
    **dict.fromkeys(("WEEK",), timedelta(weeks=1)),
}
_ROUNDED = {
    **_UNITS,
    **dict.fromkeys(("MONTH", "MON", "MM"), 31 * _DAY),
    **dict.fromkeys(("QUARTER",), 92 * _DAY),
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * _DAY),
}
_SAME = ("Alias", "KnownNullable", "PreciseTimestampConversion", "KnownNotNull")
_CHOICES = ("Coalesce", "Greatest", "Least")


@dataclass(frozen=True)
class Place:
    """A time that lies from ``low`` to ``high`` beside its root."""

    root: Root
    low: timedelta = _ZERO
    high: timedelta = _ZERO
    needs: tuple[Need, ...] = ()

    def moved(self, low: timedelta, high: timedelta, *needs: Need) -> "Place":
        """The place of a time that lies from ``low`` to ``high`` beside this one."""
        return replace(self, low=self.low + low, high=self.high + high, needs=(*self.needs, *needs))


@dataclass(frozen=True)
class Fields:
    """A struct of times: the places of its fields; None: not known.

    ``size`` is the exact distance of the two bounds of a window.
    """

    places: tuple[Place | None, ...]
    size: timedelta | None = None


Value = Place | Fields
Values = Mapping[int, Value]
"""What is known of the columns of rows, by their ids."""


class SessionWindowError(Exception):
    """The expression is a session window of Spark's, which has no longest length."""


def place(expression: Tree, values: Values) -> Place | None:
    """The place of a time; None if its distance from every root is not known."""
    found = evaluate(expression, values)
    return found if isinstance(found, Place) else None


def evaluate(expression: Tree, values: Values) -> Value | None:
    """A place, or the places of a struct's fields; raises SessionWindowError for a session."""
    kind, children = expression.kind, expression.children
    if kind == "AttributeReference":
        return None if expression.expression_id is None else values.get(expression.expression_id)
    if kind in _SAME:
        return evaluate(children[0], values)
    if kind == "Cast":
        return _cast(expression, values)
    if kind == "GetStructField":
        struct, ordinal = evaluate(children[0], values), int(expression.fields["ordinal"])
        known = isinstance(struct, Fields) and ordinal < len(struct.places)
        return struct.places[ordinal] if known and isinstance(struct, Fields) else None
    if kind == "CreateNamedStruct":
        return _window(expression, values)
    if kind in ("TimestampAddInterval", "TimestampAdd", "Add", "Subtract"):
        return _shifted(expression, values)
    if kind == "TruncTimestamp":
        unit = str(children[0].fields.get("value")).upper()
        return _rounded(children[1], values, _ROUNDED.get(unit), f"date_trunc('{unit.lower()}')")
    if kind in ("FromUTCTimestamp", "ToUTCTimestamp"):
        return _rounded(children[0], values, _ZONE, "a time of another zone", ahead=_ZONE)
    if kind in _CHOICES or kind == "If":
        return _chosen(children[1:] if kind == "If" else children, values)
    return None


def _cast(expression: Tree, values: Values) -> Value | None:
    """A time with or without a zone is the same instant: sessions are in UTC."""
    target, inner = expression.fields.get("dataType"), expression.children[0]
    if target == "date":
        return _rounded(inner, values, _DAY, "a date")
    return evaluate(inner, values) if target in ("timestamp", "timestamp_ntz") else None


def _rounded(
    inner: Tree, values: Values, unit: timedelta | None, said: str, ahead: timedelta = _ZERO
) -> Place | None:
    """A time that lies up to a unit before another one, and at most so much ahead of it."""
    found = place(inner, values)
    if found is None or unit is None:
        return None
    because = f"{said} lies up to {show_duration(unit)} before the time it is computed from"
    return found.moved(_TICK - unit, ahead, Need("time", ahead, unit, because))


def _shifted(expression: Tree, values: Values) -> Place | None:
    """A time and a constant; of plain numbers only those between two conversions come here."""
    if expression.kind == "TimestampAdd":
        unit = _UNITS.get(str(expression.fields.get("unit")).upper())
        number, inner = constant(expression.children[0]), expression.children[1]
        shift = None if unit is None or number is None else number // _TICK * unit
    else:
        inner, shift = expression.children[0], constant(expression.children[1])
        if expression.kind == "Subtract" and shift is not None:
            shift = -shift
    found = place(inner, values)
    if found is None or shift is None:
        return None
    if abs(shift) <= _TICK:  # the last moment of a window
        return found.moved(shift, shift)
    where = "after" if shift > _ZERO else "before"
    because = f"the time lies {show_duration(abs(shift))} {where} the one it is computed from"
    return found.moved(shift, shift, Need("time", shift, -shift, because))


def constant(expression: Tree) -> timedelta | None:
    """The µs of an interval of days and smaller units; None for one of months, or of a column."""
    if expression.kind == "UnaryMinus":
        found = constant(expression.children[0])
        return None if found is None else -found
    kind, value = str(expression.fields.get("dataType", "")), expression.fields.get("value")
    if expression.kind != "Literal" or "month" in kind or "year" in kind or value is None:
        return None
    try:
        return timedelta(microseconds=int(str(value)))
    except (ValueError, OverflowError):
        return None


def _window(expression: Tree, values: Values) -> Fields | None:
    """The bounds of a time window, from the time that it is a window over."""
    bounds, size = time_struct(expression), window_size(expression)
    if bounds is None:
        return None
    if size is None:
        if unwrap(bounds[0]).kind in ("AttributeReference", "Cast"):
            raise SessionWindowError
        return None
    inner = [part.children[0] for part in bounds[0].walk() if _is_innermost(part)]
    found = {place(part, values) for part in inner}
    over = found.pop() if len(found) == 1 else None
    if over is None:
        return None
    shown = show_duration(size)
    start = Need("window", _ZERO, size, f"a window of {shown} holds the rows after its start")
    end = Need("window", size, _ZERO, f"a window of {shown} holds the rows before its end")
    return Fields((over.moved(_TICK - size, _ZERO, start), over.moved(_TICK, size, end)), size)


def _is_innermost(part: Tree) -> bool:
    """Whether a conversion holds the time itself: no other conversion is inside of it."""
    return part.kind == "PreciseTimestampConversion" and not any(
        below.kind == "PreciseTimestampConversion"
        for child in part.children
        for below in child.walk()
    )


def _chosen(choices: tuple[Tree, ...], values: Values) -> Place | None:
    """One of several times of one root; those of several roots are not followed."""
    found = [place(choice, values) for choice in choices]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found) or len({each.root for each in known}) > 1:
        return None
    needs = tuple(dict.fromkeys(need for each in known for need in each.needs))
    return Place(
        known[0].root, min(each.low for each in known), max(each.high for each in known), needs
    )

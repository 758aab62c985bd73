"""Read a filter as people write it, such as ``country = 'DE'``, and fit its values to columns.

The grammar is pyiceberg's; docs/semantics.md describes it. Values are fitted here, because
pyiceberg takes neither 3.5 for a decimal with two digits nor a time that ends with Z, and because
it rounds 3.5 to 4 where a column has whole numbers, which would leave rows out.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.types import parse_instant

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_EXAMPLE = "write for example: country = 'DE' and show_id in (1, 2)"
_IN_CODE = "put it into the pipeline's code: .where(…) takes all that Spark can do"
_TEXT = re.compile(r"'(?:[^']|'')*'")
_ELSEWHERE_PERCENT = re.compile(r"\blike\s+'(?:[^'%]|'')*%(?!')", re.IGNORECASE)
_CAUSES = (
    (r'"', "texts stand in single quotes: country = 'DE'"),
    (r"`", "write the column's name without backticks"),
    (r"(?i)(=|!=|<>)\s*null\b", "compare with null like this: country is null, or is not null"),
    (r"(?i)\b(ilike|rlike|regexp|case|exists)\b", f"a filter compares plain values; {_IN_CODE}"),
    (r"(?i)\b(?!in\b|and\b|or\b|not\b)\w+\s*\(", f"a filter knows no functions; {_IN_CODE}"),
    (r"[\w)]\s*[+*/]|\w\s+-\s*\w", f"a filter does not calculate; {_IN_CODE}"),
    (r"(?i)\b(date|timestamp)\s*''", "write a time as a text alone: at > '2026-01-01T00:00Z'"),
    (r"^[\s(]*\w+[\s)]*$", "compare the column with a value: is_paid = true"),
    (r"\d[eE][+-]?\d", "write the number out, without an exponent"),
    (r"(?i)\bin\s*\(\s*\)", "in (…) needs at least one value"),
    (r"(?i)\bin\s*\([^)]*\.[^)]*\)", "the values of in (…) are all of one kind: (3.5, 4.0)"),
)


def parse_filter(text: str, where: str, schema: Schema | None = None) -> BooleanExpression:
    """A filter such as ``country = 'DE' and show_id > 5``; values fitted, if columns are given."""
    from pyiceberg.expressions.parser import parse

    try:
        found = parse(text)
    except Exception:  # pyparsing's own text is its grammar, pages of it
        raise PlanError(
            f"the filter {text!r} is not understood", where=where, fix=_why(text)
        ) from None
    return found if schema is None else _fitted(found, schema, text, where)


def _why(text: str) -> str:
    """What is probably wrong with a filter, and what to write instead."""
    if _ELSEWHERE_PERCENT.search(text):
        return f"like takes one %, at the end: name like 'x%'; for other patterns {_IN_CODE}"
    code = _TEXT.sub("''", text)
    return next((fix for pattern, fix in _CAUSES if re.search(pattern, code)), _EXAMPLE)


def bind_filter(schema: Schema, text: str, where: str) -> BooleanExpression:
    """A filter with its columns found in the schema; one that does not fit is an error."""
    from pyiceberg.expressions.visitors import bind

    try:
        return bind(schema, parse_filter(text, where, schema), case_sensitive=True)
    except ValueError as error:
        lost = re.match(r"Could not find field with name (.+), case_sensitive", str(error))
        if lost is None:
            raise _misfit(
                text, where, str(error), "compare a column with a value of its own type"
            ) from None
        raise PlanError(
            f"the filter {text!r} names the column {lost[1]!r}, which is not there",
            where=where,
            fix=nearest(lost[1], schema.column_names),
            column=lost[1],
        ) from None


def _misfit(text: str, where: str, problem: str, fix: str) -> PlanError:
    return PlanError(f"the filter {text!r} does not fit: {problem}", where=where, fix=fix)


def _fitted(found: BooleanExpression, schema: Schema, text: str, where: str) -> BooleanExpression:
    """The same condition with values that its columns can have."""
    from pyiceberg import expressions as parts

    if isinstance(found, parts.And | parts.Or):
        both = (_fitted(each, schema, text, where) for each in (found.left, found.right))
        return type(found)(*both)
    if isinstance(found, parts.Not):
        return parts.Not(_fitted(found.child, schema, text, where))
    if not isinstance(found, parts.LiteralPredicate | parts.SetPredicate):
        return found
    name = found.term.name  # type: ignore[attr-defined]
    try:
        kind = schema.find_field(name).field_type
    except ValueError:
        return found  # binding names the nearest column
    try:
        fitted: BooleanExpression = _with_values(found, kind)
        return fitted
    except ConfigError as error:
        raise _misfit(text, where, f"{name} is a {kind}: {error.message}", error.fix) from None


def _with_values(found: Any, kind: IcebergType) -> Any:
    """A comparison with one value, or with several, fitted to a column of that type."""
    from pyiceberg import expressions

    parts: Any = expressions  # its classes are typed as if they took no positional values
    if isinstance(found, parts.SetPredicate):
        values = [_value(each.value, kind) for each in found.literals]
        if any(not is_exact for _, is_exact in values):
            raise _never(next(v.value for v in found.literals if not _value(v.value, kind)[1]))
        return type(found)(found.term, [value for value, _ in values])
    value, is_exact = _value(found.literal.value, kind)
    if is_exact:
        return type(found)(found.term, value)
    if isinstance(found, parts.GreaterThan | parts.GreaterThanOrEqual):
        return parts.GreaterThan(found.term, value)
    if isinstance(found, parts.LessThan | parts.LessThanOrEqual):
        return parts.LessThanOrEqual(found.term, value)
    raise _never(found.literal.value)


def _never(value: object) -> ConfigError:
    return ConfigError(
        f"it can never be {value}", fix="compare with a value that the column can have"
    )


def _value(given: Any, kind: IcebergType) -> tuple[Any, bool]:
    """The value for a column of that type; if it has none, the next smaller one and False."""
    from pyiceberg.types import (
        DecimalType,
        IntegerType,
        LongType,
        TimestampType,
        TimestamptzType,
    )

    if isinstance(kind, DecimalType | IntegerType | LongType) and not isinstance(given, bool):
        return _number(given, kind.scale if isinstance(kind, DecimalType) else None)
    if isinstance(given, str) and isinstance(kind, TimestamptzType):
        return parse_instant(given).isoformat(), True
    if isinstance(given, str) and isinstance(kind, TimestampType):
        return _time_without_zone(given).isoformat(), True
    return given, True


def _number(given: Any, scale: int | None) -> tuple[Any, bool]:
    try:
        scaled = Decimal(given).scaleb(scale or 0)
        whole = int(scaled.to_integral_value(ROUND_FLOOR))
    except (ArithmeticError, TypeError, ValueError):
        raise ConfigError(
            f"{given!r} is no number", fix="compare it with a number, for example 12"
        ) from None
    value = whole if scale is None else Decimal(whole).scaleb(-scale)
    return value, scaled == whole


def _time_without_zone(given: str) -> datetime:
    try:
        moment = datetime.fromisoformat(given.strip())
    except ValueError:
        fix = "write a time without a zone, for example '2026-01-01T00:00'"
        raise ConfigError(f"{given!r} is not a time", fix=fix) from None
    if moment.tzinfo is not None:
        fix = f"leave the zone out: '{moment.replace(tzinfo=None).isoformat()}'"
        raise ConfigError(f"its times have no zone, and {given!r} has one", fix=fix)
    return moment

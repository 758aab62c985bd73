"""Compare rows: as multisets, with a tolerance where asked, and differences side by side."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from tidemill.errors import ConfigError
from tidemill.testing.differences import describe

Row: TypeAlias = dict[str, Any]


def assert_rows(
    actual: Any,
    expected: Any,
    what: str = "",
    *,
    columns: Sequence[str] | None = None,
    tolerance: float | None = None,
) -> None:
    """Fail unless both sides have the same rows, each as often, in whatever order.

    A side is a list of dicts, an Arrow table, a Polars or a Spark DataFrame; with ``columns`` also
    a list of tuples. The order of columns does not matter, and times are equal if they are the
    same moment.

    ``columns``: only these are compared. ``tolerance``: two floats are equal if they differ by no
    more than this, relative to the larger one (near zero: absolutely). Everything else must be
    equal, types included: 1 is not 1.0. Spark's sums of floats depend on the order of the rows,
    so they need a tolerance; ``plan`` names them.

    ``what`` is said in the error, beside the rows that differ.
    """
    __tracebackhide__ = True  # pytest shows the test's line, not this one
    found, wanted = rows_of(actual, columns), rows_of(expected, columns)
    missing, extra = _unequal(wanted, found)
    if tolerance is not None:
        missing, extra = _unlike(missing, extra, tolerance)
    if missing or extra:
        raise AssertionError(describe(missing, extra, (len(wanted), len(found)), what))


def rows_of(table: Any, columns: Sequence[str] | None = None) -> list[Row]:
    """The rows as dicts, of all columns or of these."""
    for method in ("to_pylist", "to_dicts"):  # Arrow, Polars
        if hasattr(table, method):
            return _chosen(getattr(table, method)(), columns)
    if hasattr(table, "toLocalIterator"):  # Spark
        return _chosen([row.asDict(recursive=True) for row in table.collect()], columns)
    return _chosen(table, columns)


def _chosen(rows: Iterable[Any], columns: Sequence[str] | None) -> list[Row]:
    return [_row(row, columns) for row in rows]


def _row(row: Any, columns: Sequence[str] | None) -> Row:
    if isinstance(row, Mapping):
        names = row if columns is None else [name for name in columns if name in row]
        return {name: row[name] for name in names}
    if not isinstance(row, Sequence) or isinstance(row, str):
        raise ConfigError(
            f"a row is {row!r}, which has no columns",
            where="tidemill.testing",
            fix="write rows as dicts, or as tuples together with columns=[…]",
        )
    if columns is None or len(row) != len(columns):
        count = "no columns are named" if columns is None else f"columns names {len(columns)}"
        raise ConfigError(
            f"the row {tuple(row)!r} has {len(row)} values, and {count}",
            where="tidemill.testing",
            fix="name one column for each value: columns=[…]",
        )
    return dict(zip(columns, row, strict=True))


def _unequal(wanted: list[Row], found: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that only one side has, or has more often."""
    ours, theirs = [key_of(row) for row in found], [key_of(row) for row in wanted]
    return (
        list(_left(wanted, theirs, Counter(theirs) - Counter(ours))),
        list(_left(found, ours, Counter(ours) - Counter(theirs))),
    )


def _left(rows: list[Row], keys: list[Any], left: Counter[Any]) -> Iterator[Row]:
    for key, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0]):
        if left[key] > 0:
            left[key] -= 1
            yield row


def _unlike(missing: list[Row], extra: list[Row], tolerance: float) -> tuple[list[Row], list[Row]]:
    """What is left when rows are paired whose floats are close and whose other values are equal."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in extra:
        groups[_exact(row)].append(row)
    alone = []
    for row in missing:
        group = groups[_exact(row)]
        near = (at for at, other in enumerate(group) if _is_near(row, other, tolerance))
        at = next(near, None)
        if at is None:
            alone.append(row)
        else:
            del group[at]
    return alone, list(itertools.chain.from_iterable(groups.values()))


def _exact(row: Row) -> Any:
    """A key of everything but the floats."""
    return key_of({n: "a float" if isinstance(v, float) else v for n, v in row.items()})


def _is_near(ours: Row, theirs: Row, tolerance: float) -> bool:
    return all(
        (math.isnan(value) and math.isnan(theirs[name]))
        or math.isclose(value, theirs[name], rel_tol=tolerance, abs_tol=tolerance)
        for name, value in ours.items()
        if isinstance(value, float)
    )


def key_of(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """A value that is equal for equal rows and can be sorted."""
    return tuple(sorted((name, repr(_plain(value))) for name, value in row.items()))


def _plain(value: Any) -> Any:
    """The value with times in UTC and decimals without their scale: equal ones look the same."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, Decimal):
        return value.normalize() + 0  # no minus before a zero
    if isinstance(value, float):
        return float(value)  # NumPy's floats show their type
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value

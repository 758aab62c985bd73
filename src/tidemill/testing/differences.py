"""Rows that differ, as text: one line for a pair of rows, and ``3 ≠ 2`` where a value differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from tidemill.types import show_instant

Row: TypeAlias = dict[str, Any]
_SHOWN = 12
_LOOKED_AT = 1_000
_WIDEST = 60


def describe(
    missing: Sequence[Row], extra: Sequence[Row], counts: tuple[int, int], what: str = ""
) -> str:
    """What differs. ``counts`` are the numbers of all expected and of all found rows."""
    head = f"rows differ{f' {what}' if what else ''}: {len(missing)} missing, {len(extra)} too many"
    lines = [f"{head} ({counts[0]} expected, {counts[1]} found)", *_columns(missing, extra)]
    pairs = _paired(missing, list(extra))
    shown = list(itertools.islice(pairs, _SHOWN))
    lines += [f"  {line}" for line in _table(shown)]
    left = (
        len(missing) + len(extra) - sum(len([r for r in pair if r is not None]) for pair in shown)
    )
    return "\n".join([*lines, *([f"  … and {left} rows more"] if left else [])])


def _columns(missing: Iterable[Row], extra: Iterable[Row]) -> list[str]:
    """Which columns one side alone has; a wrong name is the most common mistake."""
    ours, theirs = _names(extra), _names(missing)
    if not ours or not theirs:
        return []
    both = {"expected": theirs.keys() - ours.keys(), "found": ours.keys() - theirs.keys()}
    return [
        f"  only {side} has: {', '.join(sorted(names))}" for side, names in both.items() if names
    ]


def _names(rows: Iterable[Row]) -> dict[str, None]:
    return {name: None for row in rows for name in row}


def _paired(missing: Sequence[Row], extra: list[Row]) -> Iterable[tuple[Row | None, Row | None]]:
    """Each missing row with the row that is most like it, then all that are alone."""
    alone: list[tuple[Row | None, Row | None]] = []
    is_one_each = len(missing) == len(extra) == 1
    for row in missing[:_SHOWN]:
        best = max(extra[:_LOOKED_AT], key=lambda other: _likeness(row, other), default=None)
        if best is None or not (_likeness(row, best) or is_one_each):
            alone.append((row, None))
            continue
        extra.remove(best)
        yield row, best
    yield from alone
    yield from ((row, None) for row in missing[_SHOWN:])
    yield from ((None, row) for row in extra)


def _likeness(row: Row, other: Row) -> int:
    return sum(name in other and _text(other[name]) == _text(row[name]) for name in row)


def _table(pairs: Sequence[tuple[Row | None, Row | None]]) -> list[str]:
    names = list(_names(row for pair in pairs for row in pair if row is not None))
    body = [names, *([_cell(name, *pair) for name in names] for pair in pairs)]
    widths = [max(len(line[at]) for line in body) for at in range(len(names))]
    ends = ["(expected ≠ found)", *(_end(*pair) for pair in pairs)]
    return [
        "  ".join(
            (*(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), end)
        ).rstrip()
        for line, end in zip(body, ends, strict=True)
    ]


def _end(wanted: Row | None, found: Row | None) -> str:
    if wanted is None:
        return "too many"
    return "missing" if found is None else ""


def _cell(name: str, wanted: Row | None, found: Row | None) -> str:
    texts = [
        _text(row[name]) if name in row else "(no column)"
        for row in (wanted, found)
        if row is not None
    ]
    if len(set(texts)) > 1:
        return " ≠ ".join(texts)
    return texts[0] if len(texts[0]) <= _WIDEST else f"{texts[0][: _WIDEST - 1]}…"


def _text(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return show_instant(value)
    return repr(value)

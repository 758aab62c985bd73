"""Values as people read them: the filters of templates."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tidemill.types import FOREVER_MICROS, SECOND, from_micros, show_instant, show_seconds

LONGEST = 400
_NEAR = 366 * 86_400 * SECOND
"""A watermark of a run that has read all is the end less what operators wait for."""


def number(value: float | None) -> str:
    """With separators."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment(value: datetime | int | str | None) -> str:
    """A time in UTC; numbers are microseconds."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        if value >= FOREVER_MICROS - _NEAR:
            return "the end"
        value = from_micros(value)
    return show_instant(value)


def micros(value: float | None) -> str:
    """A length of time in microseconds."""
    return "" if value is None else show_seconds(value / SECOND)


def seconds(value: float | None) -> str:
    """A length of time."""
    return "" if value is None else show_seconds(value)


def percent(value: float) -> str:
    """A share, never rounded up: only all is 100%."""
    return "100%" if value >= 1 else f"{int(value * 1000) / 10:g}%"


def plain(value: Any) -> str:
    """A value of a row as text, however long."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def cut(text: str) -> str:
    """A text that is very long is cut, and says how long it is."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} letters)"


def first_line(value: str | None) -> str:
    """The first line of an error."""
    return next(iter((value or "").splitlines()), "")


FILTERS = {
    "number": number,
    "size": size,
    "moment": moment,
    "micros": micros,
    "seconds": seconds,
    "percent": percent,
    "first_line": first_line,
}

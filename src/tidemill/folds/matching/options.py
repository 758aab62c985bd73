"""Options of folds as users write them, checked when the pipeline is built."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import nearest
from tidemill.folds.base import Input


def choose(rows: Input, option: str, value: object, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise rows.wrong(f"{option} is {value!r}", nearest(str(value), allowed), option=option)


def name_columns(rows: Input, option: str, value: object) -> tuple[str, ...]:
    """Key columns: one name, or several."""
    names = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(name, str) for name in names):
        fix = "write the name of a column, or a list of names"
        raise rows.wrong(f"{option} is {value!r}", fix, option=option)
    return rows.keys(names)

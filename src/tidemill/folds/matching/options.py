"""Options of folds as users write them, checked when the pipeline is built."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import Input


def choose(rows: Input, option: str, value: object, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise PlanError(
        f"{option} is {value!r}",
        where=rows.operator,
        fix=nearest(str(value), allowed),
        option=option,
    )


def name_columns(rows: Input, option: str, value: object) -> tuple[str, ...]:
    """Key columns: one name, or several."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise PlanError(
            f"{option} is {value!r}",
            where=rows.operator,
            fix="write the name of a column, or a list of names",
            option=option,
        )
    return rows.keys(names)

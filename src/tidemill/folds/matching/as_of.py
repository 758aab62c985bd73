"""Join rows with the version of a reference table that held at their time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tidemill.errors import PlanError, nearest
from tidemill.folds.operator import column_of, read_input

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Join: TypeAlias = Callable[[DataFrame], DataFrame]

_ROLE, _KEY, _FROM, _TO = "tidemill", "key", "valid_from", "valid_to"
_OWN = "__as_of_"


def as_of(
    table: DataFrame,
    *,
    on: str | Sequence[str] | Mapping[str, str] | None = None,
    time: str | None = None,
    how: str = "left",
) -> Join:
    """Add to each row the columns of the table's version that held at the row's event time.

    ``table`` is a reference table with ``key`` and ``valid_from`` in the YAML. Of the versions of
    its key a row gets the one with the largest valid_from that is not after the row's time. ``on``
    names the rows' columns of the key, by default the key's own names; ``{"show": "show_id"}`` if
    the names differ. ``time`` is the event time, or any other timestamp of the rows. With ``how``
    ``left`` a row without a version gets nulls, with ``inner`` it is dropped.

    The join keeps no state: a row's result depends on the row and the table alone.
    """

    def join(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        if how not in ("left", "inner"):
            raise PlanError(f"how is {how!r}", where="as_of", fix="'left' or 'inner'")
        key, since, until = _roles(table)
        pairs = _pairs(key, on, frame.columns)
        at = column_of(read_input(frame, "as_of", time).time)
        added = [name for name in table.columns if name not in (*key, until)]
        _require_new(added, frame.columns)
        own = table.select(*(column_of(name).alias(_OWN + name) for name in table.columns))
        begins, ends = column_of(_OWN + since), column_of(_OWN + until)
        holds = (begins <= at) & (ends.isNull() | (at < ends))
        equal: list[Column] = [column_of(mine) == column_of(_OWN + its) for mine, its in pairs]
        joined = frame.join(own, [*equal, holds], how)
        kept = [column_of(name) for name in frame.columns]
        return joined.select(*kept, *(F.col(f"`{_OWN + n}`").alias(n) for n in added))

    return join


def _roles(table: DataFrame) -> tuple[list[str], str, str]:
    """The columns of the key, of valid_from and of valid_to, as the YAML named them."""
    roles: dict[str, list[str]] = {}
    for field in table.schema:
        roles.setdefault(str(field.metadata.get(_ROLE)), []).append(field.name)
    if not all(roles.get(role) for role in (_KEY, _FROM, _TO)):
        raise PlanError(
            "the table does not say from when on its rows hold",
            where="as_of",
            fix="give the table key: and valid_from: in tables: of the YAML, and keep these "
            "columns and valid_to as they are",
        )
    return roles[_KEY], roles[_FROM][0], roles[_TO][0]


def _pairs(
    key: list[str], on: str | Sequence[str] | Mapping[str, str] | None, columns: list[str]
) -> list[tuple[str, str]]:
    """The rows' columns, each with the key's column that it must equal."""
    if on is None or isinstance(on, Mapping):
        pairs = [(name, name) for name in key] if on is None else list(on.items())
    else:
        names = [on] if isinstance(on, str) else list(on)
        pairs = [(name, name) for name in names]
    if sorted(its for _, its in pairs) != sorted(key):
        raise PlanError(
            f"on joins by {', '.join(its for _, its in pairs)}, and the table's key is "
            f"{', '.join(key)}",
            where="as_of",
            fix="name all columns of the key; if the rows call one otherwise: "
            f"on={{'their_name': {key[0]!r}}}",
        )
    for mine, _ in pairs:
        if mine not in columns:
            fix = f"{nearest(mine, columns)}; or say on={{'their_name': {mine!r}}}"
            raise PlanError(f"the rows have no column {mine!r}", where="as_of", fix=fix)
    return pairs


def _require_new(added: list[str], columns: list[str]) -> None:
    for name in added:
        if name in columns:
            raise PlanError(
                f"rows and table both have a column {name!r}",
                where="as_of",
                fix=f"drop it from the table, or rename it: table.withColumnRenamed({name!r}, …)",
                column=name,
            )

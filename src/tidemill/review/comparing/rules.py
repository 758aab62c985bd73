"""Decide from two schemas which columns are compared, by which key, in which types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import PlanError, nearest
from tidemill.review.comparing.canonical import canonical, common_type

TIME, HASH = "t", "h"
"""Columns of a side's rows while they are compared: the time in µs, and the hash of the key."""


@dataclass(frozen=True)
class Column:
    """One column of both sides, in the type in which it is compared."""

    name: str
    kind: pa.DataType
    at: str  # its name while rows are compared: k0 of a key, v0 of another
    tolerance: float | None = None


@dataclass(frozen=True)
class Rules:
    """How two rows are compared. Rows with the same key belong together.

    Without a key given, the key is all columns that are compared exactly, and rows that find no
    equal row are not paired with others.
    """

    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    time: str | None = None  # of the sink
    is_keyed: bool = True
    only_here: tuple[str, ...] = ()  # columns that one side alone has, and so is the next
    only_there: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that are compared."""
        return (*self.keys, *self.values)

    @property
    def read(self) -> list[str]:
        """The columns to read of both sides."""
        names = dict.fromkeys(column.name for column in self.columns)
        return list(names | ({} if self.time is None else {self.time: None}))

    @property
    def close(self) -> tuple[Column, ...]:
        """The columns in which rows may differ by a tolerance."""
        return tuple(column for column in self.values if column.tolerance is not None)

    @property
    def who(self) -> tuple[Column, ...]:
        """The key without the time: of whom rows are. The whole key if there is nothing else."""
        if not self.is_keyed:
            return ()
        return tuple(key for key in self.keys if key.name != self.time) or self.keys

    def canonical(self, rows: pa.RecordBatch) -> pa.Table:
        """The rows of one side under the names and in the types in which they are compared."""
        made = {each.at: canonical(rows.column(each.name), each.kind) for each in self.columns}
        if self.time is not None:
            micros = rows.column(self.time).cast(pa.timestamp("us")).cast(pa.int64())
            made[TIME] = micros
        else:
            made[TIME] = pa.nulls(len(rows), pa.int64())
        return pa.table(made)


@dataclass(frozen=True)
class Asked:
    """What the user says of the columns."""

    key: tuple[str, ...] | None = None  # None: the sink's
    tolerance: Mapping[str, float] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()


def make_rules(
    here: pa.Schema,
    there: pa.Schema,
    asked: Asked,
    *,
    key: Sequence[str] = (),
    time: str | None = None,
    where: str = "",
) -> Rules:
    """The rules for two schemas; ``key`` and ``time`` are the sink's.

    Raises PlanError if nothing can be compared, or if a column that is named is not there.
    """
    named = key if asked.key is None else asked.key
    common = [name for name in here.names if name in there.names]
    known = {*here.names, *there.names}
    for given in (*asked.ignore, *asked.tolerance, *(asked.key or ())):
        if given not in known:
            raise PlanError(
                f"there is no column {given!r}",
                where=where,
                fix=nearest(given, known),
                column=given,
            )
    chosen = [name for name in common if name not in asked.ignore]
    if not chosen:
        raise PlanError(
            "the two tables have no column in common that could be compared: "
            f"here {_names(here.names)}; there {_names(there.names)}",
            where=where,
            fix="name another table with --with, or ignore fewer columns",
        )
    _require_time(time, (here, there), common, where)
    for each in named:
        if each not in chosen:
            lacking = "ignored" if each in asked.ignore else "not in both tables"
            raise PlanError(
                f"the key {each!r} is {lacking}",
                where=where,
                fix="choose the key with --key, of: " + ", ".join(chosen),
                column=each,
            )
    kinds = _kinds(here, there, chosen, where)
    _require_numbers(asked.tolerance, kinds, named, where)
    exact = [name for name in chosen if name not in asked.tolerance]
    if not named and not exact:
        raise PlanError(
            "without a key, some column must be compared exactly",
            where=where,
            fix="name the key with --key, or give fewer tolerances",
        )
    keys = list(named) or exact
    return Rules(
        keys=tuple(Column(name, kinds[name], f"k{at}") for at, name in enumerate(keys)),
        values=tuple(
            Column(name, kinds[name], f"v{at}", asked.tolerance.get(name))
            for at, name in enumerate(name for name in chosen if name not in keys)
        ),
        time=time,
        is_keyed=bool(named),
        only_here=tuple(name for name in here.names if name not in there.names),
        only_there=tuple(name for name in there.names if name not in here.names),
        ignored=asked.ignore,
    )


def _require_time(
    time: str | None, sides: Sequence[pa.Schema], common: Sequence[str], where: str
) -> None:
    if time is None:
        return
    if time not in common:
        raise PlanError(
            f"the table has no column {time!r}, which is the sink's time: the run's range cannot "
            "be found in it",
            where=where,
            fix="compare with a table that has it, or rename the column",
            column=time,
        )
    for found in (side.field(time).type for side in sides):
        if not pa.types.is_timestamp(found):
            raise PlanError(
                f"the column {time!r}, which is the sink's time, has no timestamps in one of the "
                f"tables ({found}): the run's range cannot be found in it",
                where=where,
                fix="compare with a table that has timestamps there",
                column=time,
            )


def _kinds(
    here: pa.Schema, there: pa.Schema, names: Sequence[str], where: str
) -> dict[str, pa.DataType]:
    kinds = {}
    for name in names:
        ours, theirs = here.field(name).type, there.field(name).type
        kind = common_type(ours, theirs)
        if kind is None:
            raise PlanError(
                f"the column {name!r} is {ours} here and {theirs} there, which cannot be compared "
                "without a loss",
                where=where,
                fix=f"leave it out: --ignore {name}; or cast it in the pipeline",
                column=name,
            )
        kinds[name] = kind
    return kinds


def _require_numbers(
    tolerance: Mapping[str, float], kinds: Mapping[str, pa.DataType], key: Sequence[str], where: str
) -> None:
    for name, allowed in tolerance.items():
        if name in key:
            raise PlanError(
                f"the tolerance is for {name!r}, which is part of the key: keys are equal or not",
                where=where,
                fix="choose another --key, or leave the tolerance out",
            )
        if name in kinds and not is_number(kinds[name]):
            raise PlanError(
                f"the tolerance is for {name!r}, which is {kinds[name]} and no number",
                where=where,
                fix="give tolerances for columns of numbers",
            )
        if not 0 <= allowed < float("inf"):
            raise PlanError(f"the tolerance {allowed} of {name!r} is not 0 or more", where=where)


def is_number(kind: pa.DataType) -> bool:
    """Whether two values of the type have a distance."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_exact(kind: pa.DataType) -> bool:
    """Whether values of the type are whole numbers or decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def within(rows: pa.RecordBatch, time: str, span: tuple[int, int]) -> pa.RecordBatch:
    """The rows with a time in the span (µs)."""
    micros = rows.column(time).cast(pa.timestamp("us")).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(micros, span[0]), pc.less(micros, span[1]))
    return rows.filter(pc.fill_null(inside, False))

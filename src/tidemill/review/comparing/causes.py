"""Say why a row differs, where that can be told. Values in, values out.

The rules, in order; the first that holds names the cause. First what is known of the row itself,
then what is known of the runs that wrote the other side's rows:

1. *twice*: a row that is only there, of a key that is here as well, and there more often.
2. *gap*: a row that is here, at a time whose input no writer of the other side has read wholly.
3. *clock*, *dead*, *late*: of the input that a row of this key and time depends on, some row went
   aside in one of the runs, and not in the other. A row that both put aside explains nothing.
4. *other code*: a writer of that time ran code that does something else.
5. *other lateness*: a writer of that time allowed another lateness or skew.

Everything else is not explained. What is not known (a run whose folder is gone, a table that
others write) explains nothing either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidemill.review.comparing.judging import KIND, ONLY_HERE, TWICE
from tidemill.review.comparing.rules import TIME

if TYPE_CHECKING:
    import polars as pl

CAUSE = "cause"
_LOW, _AT, _ORDER = "_low", "_at", "_order"


class Cause(StrEnum):
    """Why a row differs."""

    TWICE = "twice"
    GAP = "gap"
    CLOCK = "clock"
    DEAD = "dead"
    LATE = "late"
    CODE = "other code"
    LATENESS = "other lateness"
    UNKNOWN = "not explained"


@dataclass(frozen=True)
class Writer:
    """A run that wrote rows, as far as it is known."""

    run: str
    covers: tuple[int, int] | None = None  # µs: times whose input it has read wholly; None: unknown
    code: str = ""  # a digest; empty: not known
    lateness: Mapping[str, tuple[int, int]] | None = None  # and skew, by source
    replaced: tuple[tuple[int, int], ...] = ()  # µs: ranges that others have published since

    def has_other_code(self, other: Writer) -> bool:
        """Whether it is known that the two ran different code."""
        return bool(self.code and other.code) and self.code != other.code

    def has_other_lateness(self, other: Writer) -> bool:
        """Whether it is known that the two allowed different delays."""
        ours, theirs = self.lateness or {}, other.lateness or {}
        return any(ours[source] != theirs[source] for source in ours.keys() & theirs.keys())


@dataclass(frozen=True)
class Aside:
    """Input rows that one run put aside and the other did not."""

    cause: Cause
    keys: tuple[str, ...]  # columns of the key that they have too, as texts
    rows: pl.DataFrame  # these columns, and TIME
    delay: int = 0  # µs: TIME may be so much later than the row's event


@dataclass(frozen=True)
class Evidence:
    """What is known of both sides."""

    ours: Writer | None = None
    writers: tuple[Writer, ...] = ()
    reach: tuple[int, int] = (0, 0)  # µs: a row depends on input so long before and after its time
    aside: tuple[Aside, ...] = ()
    notes: tuple[str, ...] = ()


def explain(rows: pl.DataFrame, known: Evidence) -> pl.DataFrame:
    """The rows that differ, with their CAUSE."""
    import polars as pl

    found: Any = pl.when(pl.col(TWICE)).then(pl.lit(str(Cause.TWICE)))
    found = found.when(_in_gap(known)).then(pl.lit(str(Cause.GAP)))
    rows = rows.with_row_index(_ORDER)
    for number, aside in enumerate(known.aside):
        rows = _touch(rows, aside, known.reach, f"_aside{number}")
        found = found.when(pl.col(f"_aside{number}")).then(pl.lit(str(aside.cause)))
    if known.ours is not None:
        for cause, differs in ((Cause.CODE, Writer.has_other_code),
                               (Cause.LATENESS, Writer.has_other_lateness)):  # fmt: skip
            others = [writer for writer in known.writers if differs(writer, known.ours)]
            if others:
                found = found.when(_written_by(others, known)).then(pl.lit(str(cause)))
    named = found.otherwise(pl.lit(str(Cause.UNKNOWN))).alias(CAUSE)
    names = [f"_aside{number}" for number in range(len(known.aside))]
    return rows.with_columns(named).sort(_ORDER).drop(_ORDER, *names)


def _covered(writer: Writer) -> pl.Expr:
    import polars as pl

    def inside(span: tuple[int, int]) -> pl.Expr:
        return (pl.col(TIME) >= span[0]) & (pl.col(TIME) < span[1])

    found = pl.lit(True) if writer.covers is None else inside(writer.covers).fill_null(True)
    for span in writer.replaced:
        found &= ~inside(span).fill_null(False)
    return found


def _in_gap(known: Evidence) -> pl.Expr:
    import polars as pl

    if not known.writers:
        return pl.lit(False)
    is_covered = pl.any_horizontal([_covered(writer) for writer in known.writers])
    return ~is_covered & (pl.col(KIND) <= ONLY_HERE)


def _written_by(writers: list[Writer], known: Evidence) -> pl.Expr:
    """Rows of a time that one of these covers; of a time that nobody covers, all rows."""
    import polars as pl

    by_these = pl.any_horizontal([_covered(writer) for writer in writers])
    return by_these | ~pl.any_horizontal([_covered(writer) for writer in known.writers])


def _touch(rows: pl.DataFrame, aside: Aside, reach: tuple[int, int], name: str) -> pl.DataFrame:
    """Whether an input row that went aside lies within a row's reach, and is of its key."""
    import polars as pl

    before, after = reach
    by = [f"_{key}" for key in aside.keys]
    left = rows.with_columns(
        (pl.col(TIME) - before).alias(_LOW),
        *(pl.col(key).cast(pl.String).alias(f"_{key}") for key in aside.keys),
    )
    right = aside.rows.select(
        pl.col(TIME).alias(_AT), *(pl.col(key).alias(f"_{key}") for key in aside.keys)
    )
    has = left.filter(pl.col(_LOW).is_not_null()).sort(_LOW).join_asof(
        right.drop_nulls().sort(_AT), left_on=_LOW, right_on=_AT, by=by or None,
        strategy="forward", coalesce=False, check_sortedness=False,
    )  # fmt: skip
    end = pl.col(TIME) + after + aside.delay
    inside = (pl.col(_AT) < end) if after else (pl.col(_AT) <= end)
    hit = has.filter(inside).select(_ORDER, pl.lit(True).alias(name))
    joined = rows.join(hit, on=_ORDER, how="left")
    return joined.with_columns(pl.col(name).fill_null(False))

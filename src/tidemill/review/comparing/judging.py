"""Judge two sides' rows of one bucket: which are equal, and how the others differ.

A bucket has all rows of its keys, of both sides. Rows of a key that each side has once are joined
by the hash of the key; all others go the longer way of `pairing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.review.comparing.pairing import close_to, pair_repeated
from tidemill.review.comparing.rules import HASH, TIME, Rules

if TYPE_CHECKING:
    import polars as pl

THERE = "_there"
"""After the name of a column: the value of the other side."""
KIND, TWICE = "kind", "twice"
DIFFERENT, ONLY_HERE, ONLY_THERE = 0, 1, 2
"""What a row that differs is: the values of KIND."""


@dataclass(frozen=True)
class Duplicates:
    """Keys that a side has more than once: how many, and how many rows they have."""

    keys: int = 0
    rows: int = 0

    def __add__(self, other: Duplicates) -> Duplicates:
        """Those of both."""
        return Duplicates(self.keys + other.keys, self.rows + other.rows)


@dataclass(frozen=True)
class Judged:
    """What is known of a bucket: the rows that differ, each with the values of both sides.

    Columns of ``differing``: KIND, TWICE, the key, TIME, and of every value ``v0`` and
    ``v0_there``.
    """

    equal: int
    differing: pl.DataFrame
    here: Duplicates
    there: Duplicates


def judge(here: pl.DataFrame, there: pl.DataFrame, rules: Rules) -> Judged:
    """Judge the rows of a bucket. Both sides have the columns of ``Rules.canonical``, and HASH."""
    import polars as pl

    here, repeated_here, there, repeated_there = _split(here, there)
    joined = here.join(there, on=HASH, how="full", suffix=THERE)
    keys = [column.at for column in rules.keys]
    is_here, is_there = pl.col(HASH).is_not_null(), pl.col(f"{HASH}{THERE}").is_not_null()
    same = [pl.col(key).eq_missing(pl.col(f"{key}{THERE}")) for key in keys]
    values = [close_to(column, THERE) for column in rules.values]
    both = is_here & is_there
    marked = joined.with_columns(
        pl.when(~is_there).then(ONLY_HERE).when(~is_here).then(ONLY_THERE)
        .when(~pl.all_horizontal(same)).then(-2)
        .when(pl.all_horizontal(values) if values else pl.lit(True)).then(-1)
        .otherwise(DIFFERENT).cast(pl.Int8).alias(KIND)
    )  # fmt: skip
    equal = marked.filter(pl.col(KIND) == -1).height
    parts = [finished(marked.filter(both & (pl.col(KIND) == DIFFERENT)), rules)]
    if not rules.is_keyed:
        parts = [_apart(parts[0], rules)]
    alone = marked.filter(pl.col(KIND) > 0)
    parts.append(finished(alone, rules))
    collided = marked.filter(pl.col(KIND) == -2)
    if collided.height:  # two keys of one hash
        more_here = collided.select(here.columns)
        more_there = collided.select([f"{c}{THERE}" for c in here.columns])
        repeated_here = pl.concat([repeated_here, more_here])
        repeated_there = pl.concat([repeated_there, more_there.rename(lambda c: c[: -len(THERE)])])
    found = Duplicates(), Duplicates()
    if repeated_here.height or repeated_there.height:
        more, rest = pair_repeated(repeated_here, repeated_there, rules)
        equal += more
        parts.append(finished(rest, rules))
        found = count_repeated(repeated_here, keys), count_repeated(repeated_there, keys)
    return Judged(equal, pl.concat(parts), *found)


def _split(
    here: pl.DataFrame, there: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Each side's rows whose key no side has twice, and the others."""
    import polars as pl

    again = [
        frame.filter(pl.col(HASH).is_duplicated())[HASH].unique()
        for frame in (here, there)
        if frame[HASH].n_unique() < frame.height
    ]
    if not again:
        return here, here.clear(), there, there.clear()
    hashes = pl.concat(again).unique().to_frame()
    return (
        here.join(hashes, on=HASH, how="anti"), here.join(hashes, on=HASH, how="semi"),
        there.join(hashes, on=HASH, how="anti"), there.join(hashes, on=HASH, how="semi"),
    )  # fmt: skip


def count_repeated(rows: pl.DataFrame, keys: Sequence[str]) -> Duplicates:
    """The keys that stand in several of these rows."""
    import polars as pl

    counts = rows.group_by(keys).agg(pl.len().alias("n")).filter(pl.col("n") > 1)["n"]
    return Duplicates(len(counts), int(counts.sum()))


def finished(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Rows that differ in the columns of :class:`Judged`."""
    import polars as pl

    whole = [
        *(pl.coalesce(key.at, f"{key.at}{THERE}").alias(key.at) for key in rules.keys),
        pl.coalesce(TIME, f"{TIME}{THERE}").alias(TIME),
    ]
    if TWICE not in rows.columns:
        rows = rows.with_columns(pl.lit(False).alias(TWICE))
    values = [name for each in rules.values for name in (each.at, f"{each.at}{THERE}")]
    return rows.select(pl.col(KIND), pl.col(TWICE), *whole, *values)


def _apart(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Pairs that are not to be pairs: without a key, each of the two stands for itself."""
    import polars as pl

    ours = [pl.lit(None, rows.schema[v.at]).alias(v.at) for v in rules.values]
    theirs = [pl.lit(None, rows.schema[v.at]).alias(f"{v.at}{THERE}") for v in rules.values]
    return pl.concat(
        [
            rows.with_columns(pl.lit(ONLY_HERE, pl.Int8).alias(KIND), *theirs),
            rows.with_columns(pl.lit(ONLY_THERE, pl.Int8).alias(KIND), *ours),
        ]
    )

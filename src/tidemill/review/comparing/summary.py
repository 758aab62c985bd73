"""What is kept of the rows that differ: counts that add up bucket by bucket, and a few samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.review.comparing.causes import CAUSE
from tidemill.review.comparing.judging import (
    DIFFERENT,
    KIND,
    ONLY_HERE,
    ONLY_THERE,
    THERE,
    Duplicates,
    Judged,
)
from tidemill.review.comparing.pairing import close_to, distance
from tidemill.review.comparing.rules import TIME, Rules, is_number
from tidemill.types import SECOND

if TYPE_CHECKING:
    import polars as pl

WIDTHS = tuple(SECOND * each for each in (1, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_419_200))
"""Widths of a histogram's bins; each is a part of the next, so that bins can be put together."""
_BINS, _BINS_HELD = 60, 100_000
_KEYS, _KEYS_HELD = 10, 100_000
_SAMPLES = 3
_NONE = Duplicates()
_NAMES = ("different", "only here", "only there")


@dataclass(frozen=True)
class ColumnDifference:
    """In how many pairs of rows a column differs, and by how much, where its values are numbers."""

    rows: int = 0
    largest: float | None = None
    total: float = 0.0
    measured: int = 0

    @property
    def mean(self) -> float | None:
        """The mean distance of the values that differ."""
        return self.total / self.measured if self.measured else None

    def __add__(self, other: ColumnDifference) -> ColumnDifference:
        """Those of both."""
        known = [each.largest for each in (self, other) if each.largest is not None]
        return ColumnDifference(
            self.rows + other.rows,
            max(known, default=None),
            self.total + other.total,
            self.measured + other.measured,
        )


@dataclass(frozen=True)
class Sample:
    """A row that differs, as both sides have it."""

    kind: str
    cause: str
    key: dict[str, Any]
    here: dict[str, Any] | None
    there: dict[str, Any] | None
    time: int | None


@dataclass(frozen=True)
class Summary:
    """What is known of some of the rows."""

    equal: int = 0
    different: int = 0
    only_here: int = 0
    only_there: int = 0
    columns: Mapping[str, ColumnDifference] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    bins: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)  # by their start, µs
    width: int = WIDTHS[0]
    keys: Mapping[tuple[Any, ...], int] = field(default_factory=dict)  # differing rows of each
    here: Duplicates = _NONE
    there: Duplicates = _NONE
    samples: tuple[Sample, ...] = ()

    @property
    def rows(self) -> int:
        """All rows: a pair that differs is one."""
        return self.equal + self.different + self.only_here + self.only_there

    @property
    def match(self) -> float:
        """Equal rows in percent of all, cut after six digits: 100 only if none differs."""
        return match_of(self.equal, self.rows)

    def __add__(self, other: Summary) -> Summary:
        """Those of both."""
        return Summary(
            self.equal + other.equal,
            self.different + other.different,
            self.only_here + other.only_here,
            self.only_there + other.only_there,
            _added(self.columns, other.columns),
            _added(self.causes, other.causes),
            *_bins(self, other),
            _largest(_added(self.keys, other.keys), _KEYS_HELD),
            self.here + other.here,
            self.there + other.there,
            _few((*self.samples, *other.samples)),
        )

    def worst_keys(self) -> list[tuple[tuple[Any, ...], int]]:
        """The keys with the most rows that differ."""
        ranked = sorted(self.keys.items(), key=lambda each: (-each[1], repr(each[0])))
        return ranked[:_KEYS]

    def histogram(self) -> tuple[int, dict[int, tuple[int, int, int]]]:
        """The width of the bins (µs), and the bins with their counts of each kind."""
        return coarsened(self.bins, self.width, _BINS)


def match_of(equal: int, rows: int) -> float:
    """Percent, cut after six digits; no rows at all are all equal."""
    return 100.0 if not rows else equal * 100_000_000 // rows / 1_000_000


def summarize(judged: Judged, rows: pl.DataFrame, rules: Rules) -> Summary:
    """The summary of a bucket; ``rows`` are those that differ, with their causes."""
    import polars as pl

    kinds = dict(rows[KIND].value_counts().iter_rows())
    per_bin = rows.filter(pl.col(TIME).is_not_null()).group_by(
        (pl.col(TIME) // WIDTHS[0] * WIDTHS[0]).alias("bin")
    ).agg(*((pl.col(KIND) == kind).sum().alias(f"n{kind}") for kind in range(3)))  # fmt: skip
    who = [column.at for column in rules.who]
    counts = rows.group_by(who).agg(pl.len()) if who else None
    if counts is not None and len(counts) > _KEYS_HELD:
        counts = counts.top_k(_KEYS_HELD, by="len")
    return Summary(
        judged.equal,
        kinds.get(DIFFERENT, 0),
        kinds.get(ONLY_HERE, 0),
        kinds.get(ONLY_THERE, 0),
        _columns(rows.filter(pl.col(KIND) == DIFFERENT), rules),
        dict(rows[CAUSE].value_counts().iter_rows()),
        {start: tuple(each) for start, *each in per_bin.iter_rows()},
        WIDTHS[0],
        {} if counts is None else {tuple(key): n for *key, n in counts.iter_rows()},
        judged.here,
        judged.there,
        _samples(rows, rules),
    )


def _columns(pairs: pl.DataFrame, rules: Rules) -> dict[str, ColumnDifference]:
    found = {}
    for column in rules.values:
        other = pairs.filter(~close_to(column, THERE))
        if not other.height:
            continue
        if not is_number(column.kind):
            found[column.name] = ColumnDifference(other.height)
            continue
        apart = other.select(distance(column, THERE).alias("d"))["d"]
        apart = apart.filter(apart.is_finite())
        largest = apart.max() if len(apart) else None
        found[column.name] = ColumnDifference(
            other.height,
            None if largest is None else float(largest),  # type: ignore[arg-type]
            float(apart.sum()),
            len(apart),
        )
    return found


def _samples(rows: pl.DataFrame, rules: Rules) -> tuple[Sample, ...]:
    """A few rows of every kind and cause, the earliest."""
    keys = [column.at for column in rules.keys]
    if not rows.height:
        return ()
    first = rows.sort(TIME, *keys, nulls_last=True).group_by(KIND, CAUSE).head(_SAMPLES)
    return _few(tuple(_sample(row, rules) for row in first.iter_rows(named=True)))


def _sample(row: dict[str, Any], rules: Rules) -> Sample:
    kind = row[KIND]
    values = {
        suffix: {column.name: row[f"{column.at}{suffix}"] for column in rules.values}
        for suffix in ("", THERE)
    }
    key = {column.name: row[column.at] for column in rules.keys}
    return Sample(
        _NAMES[kind],
        row[CAUSE],
        key,
        None if kind == ONLY_THERE else values[""],
        None if kind == ONLY_HERE else values[THERE],
        row[TIME],
    )


def _few(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The earliest of every kind and cause."""
    ordered = sorted(
        samples, key=lambda s: (s.kind, s.cause, s.time is None, s.time or 0, repr(s.key))
    )
    seen: dict[tuple[str, str], int] = {}
    kept = []
    for sample in ordered:
        name = (sample.kind, sample.cause)
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= _SAMPLES:
            kept.append(sample)
    return tuple(kept)


def _added(ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> dict[Any, Any]:
    found = dict(ours)
    for name, value in theirs.items():
        found[name] = found[name] + value if name in found else value
    return found


def _largest(counts: dict[Any, int], held: int) -> dict[Any, int]:
    """The largest counts, if there are more than are held: then small counts are not exact."""
    if len(counts) <= held:
        return counts
    return dict(sorted(counts.items(), key=lambda each: -each[1])[: held // 2])


def _bins(ours: Summary, theirs: Summary) -> tuple[dict[int, tuple[int, int, int]], int]:
    width = max(ours.width, theirs.width)
    both: dict[int, tuple[int, int, int]] = {}
    for each in (ours, theirs):
        both = _put_together(each.bins, width, both)
    wider, found = coarsened(both, width, _BINS_HELD)
    return found, wider


def coarsened(
    bins: Mapping[int, tuple[int, int, int]], width: int, most: int
) -> tuple[int, dict[int, tuple[int, int, int]]]:
    """At most so many bins from the first to the last, each of the smallest width that does."""
    for wider in (each for each in WIDTHS if each >= width):
        width, reach = wider, (max(bins) - min(bins)) // wider if bins else 0
        if reach < most:
            break
    return width, _put_together(bins, width, {})


def _put_together(
    bins: Mapping[int, tuple[int, int, int]], width: int, found: dict[int, tuple[int, int, int]]
) -> dict[int, tuple[int, int, int]]:
    for start, (a, b, c) in bins.items():
        at = start // width * width
        x, y, z = found.get(at, (0, 0, 0))
        found[at] = (a + x, b + y, c + z)
    return found

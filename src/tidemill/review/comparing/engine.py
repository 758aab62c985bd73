"""Compare two places of any size: deal both sides' rows by their key, judge bucket by bucket.

Rows of both sides are read side by side, batch by batch. Up to a million of each side stay in
memory; more go to files of a temporary folder. Memory is then that of the largest bucket. A bucket
that is too large is dealt again by another hash; one that stays large, because one key has most of
its rows, is first relieved of the rows that are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.review.comparing.causes import Evidence, explain
from tidemill.review.comparing.judging import Judged, count_repeated, finished, judge
from tidemill.review.comparing.pairing import cancel_equal, pair_repeated
from tidemill.review.comparing.rules import HASH, TIME, Rules
from tidemill.review.comparing.summary import Summary, summarize
from tidemill.rows.dealing import HELD, Dealt

if TYPE_CHECKING:
    import polars as pl

_AT_ONCE = 2
_LARGE = 192 * 1024 * 1024
_PARTS = 64
_SEED = 1  # another hash than that by which rows were dealt
_BATCH = 128 * 1024
Batches = Callable[[], Iterable[pa.RecordBatch]]


@dataclass
class Seen:
    """How many rows of a side were read, and their first and last time (µs)."""

    rows: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, frame: pl.DataFrame) -> None:
        """Count the rows of a frame."""
        self.rows += frame.height
        low, high = (getattr(frame[TIME], name)() for name in ("min", "max"))
        self.first = min((each for each in (self.first, low) if each is not None), default=None)
        self.last = max((each for each in (self.last, high) if each is not None), default=None)


def compare_rows(
    here: Batches,
    there: Batches,
    rules: Rules,
    known: Evidence,
    folder: Path | None = None,
    *,
    held: int = HELD,
    large: int = _LARGE,
) -> tuple[Summary, Seen, Seen]:
    """The summary over all rows of both sides, and what was seen of each.

    ``folder`` gets files if there are many rows.
    """
    with _dealt(folder, held) as ours, _dealt(folder, held) as theirs:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            work = ((ours, here), (theirs, there))
            begun = [pool.submit(_deal, dealt, rows, rules) for dealt, rows in work]
            seen = [each.result() for each in begun]
        return _judge_all(ours, theirs, rules, known, large), seen[0], seen[1]


def _dealt(folder: Path | None, held: int) -> Dealt:
    return Dealt(lambda frame: frame[HASH], folder, held=held)


def _deal(dealt: Dealt, rows: Batches, rules: Rules) -> Seen:
    """Read one side to its end."""
    import polars as pl

    seen = Seen()

    keys = [column.at for column in rules.keys]
    for table in _together(rows(), rules):
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        seen.add(frame)
        dealt.add(frame.with_columns(frame.select(keys).hash_rows().alias(HASH)))
    return seen


def _together(batches: Iterable[pa.RecordBatch], rules: Rules) -> Iterator[pa.Table]:
    """Batches in the form in which they are compared; small ones come together."""
    held: list[pa.Table] = []
    for batch in batches:
        if not len(batch):
            continue
        try:
            held.append(rules.canonical(batch))
        except pa.ArrowInvalid as error:
            raise PlanError(
                f"a value cannot be compared: {error}",
                fix="leave its column out with --ignore",
            ) from None
        if sum(map(len, held)) >= _BATCH:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _judge_all(ours: Dealt, theirs: Dealt, rules: Rules, known: Evidence, large: int) -> Summary:
    if ours.is_spilled != theirs.is_spilled:  # one side is large: deal the other in the same way
        (theirs if ours.is_spilled else ours).spill()
    buckets = sorted({*ours.buckets(), *theirs.buckets()})
    one = partial(_bucket, (ours, theirs), rules, known, large)
    found = Summary()
    if len(buckets) < _AT_ONCE:
        return sum(map(one, buckets), found)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for summary in pool.map(one, buckets):
            found += summary
    return found


def _bucket(
    sides: tuple[Dealt, Dealt], rules: Rules, known: Evidence, large: int, bucket: int
) -> Summary:
    ours, theirs = sides
    size = ours.bytes.get(bucket, 0) + theirs.bytes.get(bucket, 0)
    here, there = ours.take(bucket), theirs.take(bucket)
    if here is None:
        assert there is not None
        here = there.clear()
    if there is None:
        there = here.clear()
    if size > large:
        return _again(here, there, rules, known, large)
    return _judged(here, there, rules, known)


def _again(
    here: pl.DataFrame, there: pl.DataFrame, rules: Rules, known: Evidence, large: int
) -> Summary:
    """Judge a bucket that is too large, in parts of other hashes; a part is a view in memory."""
    keys = [column.at for column in rules.keys]
    size = here.estimated_size() + there.estimated_size()
    parts = int(min(_PARTS, max(2, size // max(1, large // 2))))
    found = Summary()
    numbers = [frame.select(keys).hash_rows(_SEED) % parts for frame in (here, there)]
    for part in range(parts):
        left, right = here.filter(numbers[0] == part), there.filter(numbers[1] == part)
        if left.height or right.height:
            size = left.estimated_size() + right.estimated_size()
            judge_part = _relieved if size > large else _judged
            found += judge_part(left, right, rules, known)
    return found


def _relieved(here: pl.DataFrame, there: pl.DataFrame, rules: Rules, known: Evidence) -> Summary:
    """Judge rows of which one key has most: the equal ones leave first, in parts of their own."""
    import polars as pl

    names, keys = ([each.at for each in columns] for columns in (rules.columns, rules.keys))
    found = count_repeated(here, keys), count_repeated(there, keys)
    numbers = [frame.select(names).hash_rows() % _PARTS for frame in (here, there)]
    equal = 0
    left: list[pl.DataFrame] = []
    right: list[pl.DataFrame] = []
    for part in range(_PARTS):
        same, mine, others = cancel_equal(
            here.filter(numbers[0] == part), there.filter(numbers[1] == part), rules
        )
        equal += same
        left.append(mine)
        right.append(others)
    more, rest = pair_repeated(pl.concat(left), pl.concat(right), rules, here.select(keys).unique())
    judged = Judged(equal + more, finished(rest, rules), *found)
    return summarize(judged, explain(judged.differing, known), rules)


def _judged(here: pl.DataFrame, there: pl.DataFrame, rules: Rules, known: Evidence) -> Summary:
    judged = judge(here, there, rules)
    return summarize(judged, explain(judged.differing, known), rules)

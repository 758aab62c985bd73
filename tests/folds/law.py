"""The slicing law and the locality law for folds, without Spark.

A log is rows with an event time and a delay; a slicing cuts it by ingest time. The harness does
what the runner does (buckets, prepare, state as Arrow bytes between batches), with every freedom
drawn at random: where the cuts are, how many buckets, the order of rows, how rows are dealt to
tasks before the shuffle, where the process was restarted.
"""

import io
import random
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tidemill.errors import PlanError
from tidemill.folds.base import Input, Passing
from tidemill.folds.frames import empty, stack, to_arrow, to_polars
from tidemill.testing import assert_same_rows
from tidemill.types import FOREVER_MICROS, from_micros, to_micros

micros, moment = to_micros, from_micros
US = timedelta(microseconds=1)
LATENESS = 40
"""Small whole microseconds stand for all lengths: equal times and exact bounds are likely."""


class Fine(Input):
    """Rows of an operator whose lengths are whole microseconds, finer than users may write."""

    def length(self, value, option, *, zero=False):
        return value if isinstance(value, int) else super().length(value, option, zero=zero) // 1000


@dataclass(frozen=True)
class Cut:
    """One way to run a fold: all that must not matter."""

    frontiers: tuple[int, ...]
    buckets: int
    seed: int


def cuts(longest=400):
    """Random slicings, at least four batches in most."""
    return st.builds(
        Cut,
        st.lists(st.integers(0, longest), max_size=8, unique=True).map(lambda f: tuple(sorted(f))),
        st.integers(1, 4),
        st.integers(0, 2**32),
    )


def run_fold(fold, rows, cut, schema):
    """The fold's output, and the rows its last state still holds, under one cut.

    ``rows`` are (ingest, row) pairs with whole numbers of microseconds.
    """
    dice = random.Random(cut.seed)
    states = {bucket: empty(fold.state) for bucket in range(cut.buckets)}
    outputs, low, was = [empty(fold.output)], None, None
    for frontier in (*cut.frontiers, FOREVER_MICROS):
        chosen = [row for at, row in rows if (low is None or at >= low) and at < frontier]
        dice.shuffle(chosen)
        now = FOREVER_MICROS if frontier == FOREVER_MICROS else frontier - LATENESS
        parts = _prepare(fold, chosen, schema, dice)
        for bucket, state in states.items():
            own = [row for row in parts.rows(named=True) if _bucket(fold, row, cut) == bucket]
            dice.shuffle(own)
            table = pa.Table.from_pylist(own, schema=fold.parts)
            output, kept = fold.step(state, to_polars(table), Passing(was, now))
            outputs.append(to_polars(to_arrow(output, fold.output)))
            states[bucket] = _restarted(fold, kept)
        low, was = frontier, now
    return stack(outputs).rows(named=True), sum(len(state) for state in states.values())


def _prepare(fold, rows, schema, dice):
    """Deal the rows to tasks, prepare each share alone."""
    shares = [[] for _ in range(dice.randint(1, 3))]
    for row in rows:
        dice.choice(shares).append(row)
    prepared = [
        to_polars(
            to_arrow(fold.prepare(to_polars(pa.Table.from_pylist(s, schema=schema))), fold.parts)
        )
        for s in shares
    ]
    return stack(prepared)


def _bucket(fold, row, cut):
    return random.Random(repr([row[key] for key in fold.keys])).randrange(cut.buckets)


def _restarted(fold, state):
    """The state as the next batch reads it: sorted, written, read."""
    table = to_arrow(state.sort(fold.order, nulls_last=True), fold.state)
    assert len(state.select(fold.order).unique()) == len(state), "the order does not sort totally"
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return to_polars(pa.ipc.open_file(sink.getvalue()).read_all())


def check_slicing(fold, rows, cut, schema, expected):
    """One example of the slicing law; nothing may be left behind at the end."""
    found, left = run_fold(fold, rows, cut, schema)
    assert_same_rows(found, expected, str(cut))
    assert left == 0, f"{left} rows of state are left after the end"


def check_refused(bind, rows, message, fix=""):
    """The options are refused, with an error that names the operator."""
    with pytest.raises(PlanError) as refused:
        bind(rows)
    assert message in refused.value.message
    assert fix in refused.value.fix
    assert refused.value.where == rows.operator


def check_reach(fold, rows, cut, schema, at):
    """What the fold declares about each time column of its output: the locality law, and delay.

    Input begun at ``at`` gives the same rows from ``at + lookback`` on, input that ends at ``at``
    the same rows up to ``at - lookahead``, and no row comes out with a time below the watermark
    before it less the delay.
    """
    time = fold.source.time
    whole, _ = run_fold(fold, rows, Cut((), 1, 0), schema)
    begun, _ = run_fold(fold, [r for r in rows if micros(r[1][time]) >= at], cut, schema)
    ended, _ = run_fold(fold, [r for r in rows if micros(r[1][time]) <= at], cut, schema)
    given = list(emissions(fold, rows, cut, schema))
    assert fold.times
    for column, reach in fold.times.items():
        since, until = at + reach.lookback / US, at - reach.lookahead / US
        for part, low, high in ((begun, since, FOREVER_MICROS), (ended, -FOREVER_MICROS, until)):
            inside = [
                [row for row in each if low <= micros(row[column]) <= high]
                for each in (part, whole)
            ]
            assert_same_rows(*inside, f"{column} from {low} to {high}, input cut at {at}")
        for was, output in given:
            for row in output:
                assert was is None or micros(row[column]) >= was - reach.delay / US, (row, was)


def emissions(fold, rows, cut, schema):
    """(watermark before, rows given out) of each batch, in one bucket."""
    state, low, was = empty(fold.state), None, None
    for frontier in (*cut.frontiers, FOREVER_MICROS):
        chosen = [row for at, row in rows if (low is None or at >= low) and at < frontier]
        now = FOREVER_MICROS if frontier == FOREVER_MICROS else frontier - LATENESS
        parts = _prepare(fold, chosen, schema, random.Random(cut.seed))
        output, state = fold.step(state, parts, Passing(was, now))
        yield was, to_polars(to_arrow(output, fold.output)).rows(named=True)
        low, was = frontier, now


TRIALS = 25
"""Independent logs that ride in one example as different keys: each is an example of its own."""


def logs(row, longest=400, size=10):
    """Logs of on-time rows: ``row`` makes the rest of a row from its event time."""
    event = st.tuples(st.integers(0, longest), st.integers(0, LATENESS))
    log = st.lists(
        event.flatmap(lambda e: row(e[0]).map(lambda r: (e[0] + e[1], r))), max_size=size
    )
    return st.lists(log, min_size=TRIALS, max_size=TRIALS).map(
        lambda each: [
            (at, {"trial": trial, **made}) for trial, rows in enumerate(each) for at, made in rows
        ]
    )

"""State that is carried: cut anywhere, other buckets, added aggregates, and nobody sees it."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds import test_deduplicate, test_sessions, test_top_n, test_unique_counts
from tests.folds import test_windows as test_windows_fold
from tests.folds.law import LATENESS, Fine, logs, run_fold
from tests.folds.law import Cut as Whole
from tests.folds.plays import AGG, SCHEMA, row
from tidemill.folds.base import Passing
from tidemill.folds.frames import empty, stack, to_arrow, to_polars
from tidemill.folds.hashing import bucket_of
from tidemill.folds.rebucketing import fitted, spark_bucket, split
from tidemill.folds.shaping import shape_of
from tidemill.folds.windowed.sessions import sessions
from tidemill.folds.windowed.windows import windows
from tidemill.planning.code.shapes import OPTIONAL
from tidemill.testing import assert_same_rows
from tidemill.types import FOREVER_MICROS


class Machine:
    """A fold over its buckets, from carried state or from nothing."""

    def __init__(self, fold, buckets, is_packed, carried=None, was=None):
        self.fold, self.buckets, self.is_packed, self.was = fold, buckets, is_packed, was
        kept = carried or [fold.state.empty_table()]
        parts = [split(table, fold.keys, buckets, is_packed=is_packed) for table in kept]
        self.states = [
            to_polars(fitted(pa.concat_tables(pieces), fold.state))
            for pieces in zip(*parts, strict=True)
        ]

    def step(self, rows, schema, now):
        table = pa.Table.from_pylist(rows, schema=schema)
        parts = to_arrow(self.fold.prepare(to_polars(table)), self.fold.parts)
        outputs = [empty(self.fold.output)]
        own = split(parts, self.fold.keys, self.buckets, is_packed=self.is_packed)
        for bucket, part in enumerate(own):
            output, kept = self.fold.step(
                self.states[bucket], to_polars(part), Passing(self.was, now)
            )
            outputs.append(to_polars(to_arrow(output, self.fold.output)))
            self.states[bucket] = kept
        self.was = now
        return stack(outputs).rows(named=True)

    def kept(self):
        return [to_arrow(state, self.fold.state) for state in self.states]


FOLDS = {
    "windows": (test_windows_fold.fold(10, 30, 33), SCHEMA, row),
    "sessions": (test_sessions.fold(40), SCHEMA, row),
    "unique counts": (test_unique_counts.fold(10, 25), test_unique_counts.SCHEMA,
                      test_unique_counts.row),
    "sketches": (test_unique_counts.fold(10, 25, "sketch"), test_unique_counts.SCHEMA,
                 test_unique_counts.row),
    "top": (test_top_n.fold(10, 30), test_top_n.SCHEMA, test_top_n.row),
}  # fmt: skip
machines = st.tuples(st.integers(1, 5), st.booleans())


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), ends=st.tuples(*[st.integers(0, 400)] * 3).map(sorted),
       before=machines, after=machines)  # fmt: skip
def test_a_carried_state_goes_on_as_if_nothing_had_been(name, data, ends, before, after):
    fold, schema, make = FOLDS[name]
    rows = data.draw(logs(make, size=4))
    expected, _ = run_fold(fold, rows, Whole((), 1, 0), schema)
    machine, found, low = Machine(fold, *before), [], None
    for number, end in enumerate((*ends, FOREVER_MICROS)):
        chosen = [each for at, each in rows if (low is None or at >= low) and at < end]
        now = end if end == FOREVER_MICROS else end - LATENESS
        found += machine.step(chosen, schema, now)
        if number == 1:
            machine = Machine(fold, *after, machine.kept(), machine.was)
        low = end
    assert_same_rows(found, expected, "carried and never stopped")


KEPT = ("plays", "first", "last", "shares")


@pytest.mark.parametrize("make", [
    lambda agg: windows(key=["trial", "user"], every=10, size=30, agg=agg),
    lambda agg: sessions(key=["trial", "user"], gap=15, max_length=40, agg=agg),
], ids=["windows", "sessions"])  # fmt: skip
@settings(max_examples=10, deadline=None)
@given(rows=logs(row, size=4), end=st.integers(0, 400), before=machines, after=machines)
def test_an_added_aggregate_begins_with_what_comes(make, rows, end, before, after):
    """What was kept goes on; what is new has seen the rows since, and no row is there twice."""
    old = make({name: AGG[name] for name in KEPT}).bind(Fine("fold", SCHEMA, "at"))
    new = make(AGG).bind(Fine("fold", SCHEMA, "at"))
    optional = {name for name, what in AGG.items() if _function(what) in OPTIONAL}
    wanted = {name: AGG[name] for name in AGG if name in optional or name in KEPT}
    new = make(wanted).bind(Fine("fold", SCHEMA, "at"))
    assert not list(shape_of(new).misfits(shape_of(old)))
    whole, _ = run_fold(new, rows, Whole((), 1, 0), SCHEMA)
    machine = Machine(old, *before)
    given_before = machine.step([r for at, r in rows if at < end], SCHEMA, end - LATENESS)
    machine = Machine(new, *after, machine.kept(), machine.was)
    later = machine.step([r for at, r in rows if at >= end], SCHEMA, FOREVER_MICROS)
    names = [name for name in old.output.names if name != "session_id"]
    part = [{n: each[n] for n in names} for each in [*given_before, *later]]
    assert_same_rows(part, [{n: each[n] for n in names} for each in whole], "what was kept")
    for each in later:
        assert each["known"] == len(each["all"])
        assert each["known"] <= each["plays"]
        assert (each["seconds"] is None) == (each["known"] == 0)


def _function(what):
    return what if isinstance(what, str) else what[0]


def bound(agg=None, key="user", every="10 s", **options):
    return windows(key=key, every=every, agg=agg or {"n": "count"}, **options).bind(
        Fine("windows", SCHEMA, "at")
    )


@pytest.mark.parametrize(("now", "why"), [
    (bound(), []),
    (bound({"n": "count", "m": ("max", "seconds")}), []),
    (bound({"m": ("max", "seconds")}), []),
    (bound(every="5 s"),
     ["its panes is every 5ms, size 5ms, the state's is every 10ms, size 10ms"]),
    (bound(key="trial"), ["its key is trial, the state's is user",
                          "the column 'trial' is int64, in the state it is not there",
                          "the column 'user' is not there, in the state it is int64"]),
    (bound({"n": ("count", "seconds")}),
     ["the aggregate 'n' is count of seconds, in the state it is count"]),
    (bound({"n": "count", "f": ("first", "seconds")}),
     ["the aggregate 'f' is new, and a first value cannot begin in the middle"]),
    (sessions(key="user", gap="1 s").bind(Fine("sessions", SCHEMA, "at")),
     ["it is sessions, the state is of windows"]),
], ids=["the same", "one more", "another", "width", "key", "meaning", "first", "kind"])  # fmt: skip
def test_what_does_not_fit_is_said_by_column(now, why):
    assert list(shape_of(now).misfits(shape_of(bound()))) == why


def test_a_column_of_another_type_does_not_fit():
    shape = shape_of(bound({"n": "count", "m": ("max", "seconds")}))
    other = replace(shape, columns={**shape.columns, "m": "double"})
    assert list(shape.misfits(other)) == [
        "the column 'm' is int64, in the state it is double",
    ]


KEYS = {
    "flag": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-128, 7, None]),
    "int": (pa.int32(), [-(2**31), 0, 2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), -1, 5, None]),
    "text": (pa.string(), ["", "a", "é" * 3, "x" * 7, "y" * 31, "z" * 32, "w" * 77, None]),
    "bytes": (pa.binary(), [b"", b"\x00\xff", b"abcdefgh" * 9, None]),
    "day": (pa.date32(), [datetime(1969, 5, 1, tzinfo=UTC).date(), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    "money": (pa.decimal128(12, 2), [Decimal("-12.34"), Decimal("0.01"), None]),
    "huge": (pa.decimal128(30, 3), [Decimal("-128.000"), Decimal("1e20"), Decimal("0.127"), None]),
}  # fmt: skip


@pytest.mark.spark
def test_the_buckets_are_those_of_spark(spark):
    from pyspark.sql import functions as F

    length = max(len(values) for _, values in KEYS.values())
    columns = {
        name: pa.array([values[n % len(values)] for n in range(length)], kind)
        for name, (kind, values) in KEYS.items()
    }
    table = pa.table(columns)
    frame = spark.createDataFrame(table)
    for keys in [*([name] for name in KEYS), ["text", "long"], list(KEYS)]:
        bucket = F.pmod(F.xxhash64(*keys), F.lit(1009)).cast("int")
        theirs = [found[0] for found in frame.select(bucket).collect()]
        assert spark_bucket(table, keys, 1009).tolist() == theirs, keys


def test_a_split_keeps_every_row_in_its_bucket():
    table = pa.table({"key": pa.array([*range(50), None]), "n": pa.array(range(51))})
    for is_packed in (True, False):
        parts = split(table, ["key"], 7, is_packed=is_packed)
        assert sorted(n for part in parts for n in part["n"].to_pylist()) == list(range(51))
        for bucket, part in enumerate(parts):
            found = bucket_of(part, ["key"], 7) if is_packed else spark_bucket(part, ["key"], 7)
            assert set(found.tolist()) <= {bucket}
    assert [len(part) for part in split(table, [], 3, is_packed=False)] == [51, 0, 0]


def test_deduplication_is_carried_too():
    fold = test_deduplicate.fold()
    assert not list(shape_of(fold).misfits(shape_of(fold)))
    assert shape_of(fold).options["class"] == type(fold).__name__

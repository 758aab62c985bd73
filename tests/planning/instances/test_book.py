"""The book of instances: every broken row with its reason, and nothing hangs on the order."""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemill.planning.instances.book import read_book
from tidemill.planning.instances.values import Instance, hull
from tidemill.types import to_micros

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("no", pa.string()),
        ("since", TIME),
        ("until", TIME),
        ("city", pa.string()),
        ("n", pa.int64()),
    ]
)
T0 = datetime(2026, 8, 21, tzinfo=UTC)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pin:
    id: str = "no"
    start: str = "since"
    end: str = "until"
    columns: dict = field(default_factory=lambda: {f.name: str(f.type) for f in SCHEMA})


def row(no="a", since=T0, until=T0 + DAY, city="SF", n=1):
    return {"no": no, "since": since, "until": until, "city": city, "n": n}


def book(*rows, known=None, schema=SCHEMA):
    return read_book(pa.Table.from_pylist(list(rows), schema), Pin(), known)


def reasons(found):
    return {each.at: each.reason for each in found.broken}


def test_sound_rows_are_instances_and_nulls_of_parameters_are_values():
    found = book(row("b", city=None), row("a", n=7))
    assert not found.broken
    first, second = found.valid
    assert first == Instance("a", to_micros(T0), to_micros(T0 + DAY), {"city": "SF", "n": 7})
    assert second.params == {"city": None, "n": 1}
    assert found.rows.to_pylist() == [row("a", n=7), row("b", city=None)]
    assert found.find("b") is second and found.find("c") is None
    assert hull(found.valid) == (first.start, first.end)
    assert first.overlaps(first.end - 1, first.end) and not first.overlaps(first.end, first.end + 1)


def test_every_broken_row_has_its_reason_and_the_others_are_used():
    found = book(
        row(None), row("b", since=None), row("c", until=None), row("d", until=T0),
        row("e", until=T0 - DAY), row("f"),
    )  # fmt: skip
    assert [each.id for each in found.valid] == ["f"]
    assert reasons(found) == {
        0: "no is null",
        1: "since is null",
        2: "until is null",
        3: "since 2026-08-21T00:00:00Z is not before until 2026-08-21T00:00:00Z",
        4: "since 2026-08-21T00:00:00Z is not before until 2026-08-20T00:00:00Z",
    }
    assert found.broken[3].row == row("d", until=T0)


def test_an_id_used_twice_is_taken_only_where_the_rows_say_the_same():
    found = book(row("a"), row("b"), row("a"), row("c"), row("c", n=2), row("c", city=None))
    assert [each.id for each in found.valid] == ["a", "b"]
    assert reasons(found)[2] == "its id is used by 2 rows"
    told = "its id is used by 3 rows, which differ in city, n; none is taken"
    assert [reasons(found)[at] for at in (3, 4, 5)] == [told] * 3


def test_an_instance_that_is_known_stays_what_it_was():
    (was,) = book(row("a")).valid
    known = {"a": replace(was, created=5)}
    found = book(row("a", n=2), row("a"), row("a"), known=known)
    assert found.valid == [known["a"]]
    assert found.rows.to_pylist() == [row("a")]
    assert reasons(found) == {
        0: "it was changed (n was 1, is 2), and an instance never changes",
        2: "its id is used by 3 rows",
    }
    gone = book(row("a", until=T0 + 2 * DAY), known=known)
    assert not gone.valid
    assert "to was 2026-08-22T00:00Z, is 2026-08-23T00:00Z" in reasons(gone)[0]


def test_columns_that_nobody_knew_break_the_rows_that_use_them():
    schema = pa.schema([*(f for f in SCHEMA if f.name != "n"), ("n", pa.string()), ("x", TIME)])
    rows = [
        {**row("a", n=None), "x": None},
        {**row("b", n="1"), "x": None},
        {**row("c", n=None), "x": T0},
    ]
    found = book(*rows, schema=schema)
    assert [each.id for each in found.valid] == ["a"]
    assert reasons(found) == {
        1: "the column 'n' is a string, not a int64",
        2: "the column 'x' is not known",
    }
    less = book(*(dict(row("a"), n=None),), schema=pa.schema([f for f in SCHEMA if f.name != "n"]))
    assert less.valid[0].params == {"city": "SF", "n": None}


rows_of = st.lists(
    st.builds(
        row,
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([T0, T0 + DAY, None]),
        st.sampled_from([T0, T0 + 2 * DAY]),
        st.sampled_from(["SF", None]),
        st.integers(0, 1),
    ),
    max_size=8,
)


@given(rows_of, st.randoms(use_true_random=False))
def test_every_row_is_valid_or_broken_whatever_the_order(rows, dice: random.Random):
    found, shuffled = book(*rows), list(rows)
    dice.shuffle(shuffled)
    again = book(*shuffled)
    assert len(found.valid) + len(found.broken) == len(rows)
    assert found.valid == again.valid and found.rows.equals(again.rows)
    assert sorted(e.reason for e in found.broken) == sorted(e.reason for e in again.broken)
    assert len({each.id for each in found.valid}) == len(found.valid)

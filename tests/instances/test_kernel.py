"""The kernel of `pair` against a nested loop."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.instances.kernel import Index, Pairing
from tidemill.types import from_micros

TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema([("at", TIME), ("city", pa.string()), ("kind", pa.int32()), ("no", pa.int64())])
INSTANCES = pa.schema(
    [("id", pa.string()), ("since", TIME), ("until", TIME), ("city", pa.string()),
     ("kind", pa.int64()), ("least", pa.float64())]
)  # fmt: skip
KINDS = {"city": pa.string(), "kind": pa.int64()}


def pairing(*on):
    given_columns = tuple(n for n in ("id", "city", "kind", "least") if n not in on)
    return Pairing("at", on, tuple(KINDS[n] for n in on), "since", "until", given_columns)


def table(rows, schema):
    return pa.Table.from_pylist(rows, schema)


def naive(rows, instances, how):
    return [
        {**row, **{name: instance[name] for name in how.given}}
        for row in rows
        for instance in instances
        if row["at"] is not None
        and instance["since"] <= row["at"] < instance["until"]
        and all(row[n] is not None and row[n] == instance[n] for n in how.on)
    ]


def in_order(rows):
    return sorted(rows, key=lambda row: [(v is None, str(v)) for v in row.values()])


moments = st.integers(0, 12).map(from_micros)
rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "at": moments | st.none(),
            "city": st.sampled_from(["SF", "B", "", None]),
            "kind": st.sampled_from([1, 2, None]),
            "no": st.integers(0, 3),
        }
    ),
    max_size=30,
)


@st.composite
def many_instances(draw):
    made = []
    for number in range(draw(st.integers(0, 20))):
        start = draw(st.integers(-1, 12))
        made.append(
            {
                "id": f"i{number}",
                "since": from_micros(start),
                "until": from_micros(start + draw(st.integers(1, 14))),
                "city": draw(st.sampled_from(["SF", "B", "", "other", None])),
                "kind": draw(st.sampled_from([1, 2, 3, None])),
                "least": draw(st.sampled_from([1.5, None])),
            }
        )
    return made


@settings(max_examples=300)
@given(
    rows_of, many_instances(), st.sampled_from([(), ("city",), ("city", "kind"), ("kind",)]),
    st.integers(1, 9),
)  # fmt: skip
def test_pairs_are_those_of_a_nested_loop(rows, instances, on, most):
    how = pairing(*on)
    taken = [name for name in KINDS if name not in on]  # the rows would have them twice
    schema = pa.schema([field for field in ROWS if field.name not in taken])
    given_rows = [{name: row[name] for name in schema.names} for row in rows]
    found = list(Index(table(instances, INSTANCES), how).pair(table(given_rows, schema), most))
    pairs = [row for each in found for row in each.to_pylist()]
    assert in_order(pairs) == in_order(naive(given_rows, instances, how))
    assert all(0 < len(each) <= max(most, len(given_rows)) for each in found)


def test_one_row_may_belong_to_thousands_of_instances():
    start = datetime(2026, 8, 21, tzinfo=UTC)
    count = 5_000
    instances = [
        {"id": f"i{n}", "since": start - timedelta(days=n % 7), "until": start + timedelta(days=1),
         "city": "SF", "kind": 1, "least": float(n)} for n in range(count)
    ]  # fmt: skip
    rows = [{"at": start + timedelta(hours=h), "kind": 1, "no": h} for h in (0, 3, 23, 24)]
    schema = pa.schema([f for f in ROWS if f.name != "city"])
    found = list(Index(table(instances, INSTANCES), pairing("kind")).pair(table(rows, schema)))
    assert sum(map(len, found)) == 3 * count
    assert {row["no"] for each in found for row in each.to_pylist()} == {0, 3, 23}
    assert {row["id"] for each in found for row in each.to_pylist()} == {
        f"i{n}" for n in range(count)
    }


@pytest.mark.parametrize("side", ["rows", "instances", "both"])
def test_an_empty_side_makes_no_pairs(side):
    rows = [{"at": from_micros(1), "kind": 1, "no": 1}]
    instances = [{"id": "a", "since": from_micros(0), "until": from_micros(9), "kind": 1}]
    schema = pa.schema([f for f in ROWS if f.name != "city"])
    rows = [] if side in ("rows", "both") else rows
    instances = [] if side in ("instances", "both") else instances
    assert not list(Index(table(instances, INSTANCES), pairing("kind")).pair(table(rows, schema)))


def test_nested_columns_of_rows_stay_what_they_are():
    schema = pa.schema([("at", TIME), ("tags", pa.list_(pa.string())),
                        ("place", pa.struct([("x", pa.int32())]))])  # fmt: skip
    rows = [{"at": from_micros(n), "tags": ["a"] * n, "place": {"x": n}} for n in range(4)]
    instances = [{"id": "a", "since": from_micros(1), "until": from_micros(3)}]
    how = Pairing("at", (), (), "since", "until", ("id",))
    (found,) = Index(table(instances, INSTANCES), how).pair(table(rows, schema))
    assert found.to_pylist() == [{**rows[1], "id": "a"}, {**rows[2], "id": "a"}]

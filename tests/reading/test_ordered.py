import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import make_pin
from tidemill.errors import SourceError
from tidemill.reading.ordered import in_log_order

PIN = make_pin("changes", columns=("o",), partition="p", offset="o", order="position")
SCHEMA = pa.schema([("p", pa.int32()), ("o", pa.int64()), ("i", pa.timestamp("us", "UTC"))])


def batch(rows):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    arrays = [
        pa.array(column, pa.int64()).cast(f.type) for column, f in zip(columns, SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def positions(batches):
    return [(row["p"], row["o"]) for found in batches for row in found.to_pylist()]


def read(rows, lane=(0, 1)):
    return positions(in_log_order([batch(rows)], PIN, lane))


@st.composite
def logs(draw):
    """Rows of some partitions, ingest times never falling, shuffled into batches."""
    rows = []
    for partition in draw(st.sets(st.integers(0, 9), max_size=4)):
        steps = draw(st.lists(st.integers(0, 3), max_size=12))
        ingest = 0
        for offset, step in enumerate(steps):
            ingest += step
            rows.append((partition, offset * 2, ingest))
    mixed = draw(st.permutations(rows))
    cut = draw(st.integers(0, len(mixed)))
    return rows, [batch(mixed[:cut]), batch(mixed[cut:])]


@settings(max_examples=150)
@given(logs(), st.integers(1, 5))
def test_lanes_share_the_partitions_and_each_is_in_log_order(log, lanes):
    rows, batches = log
    found = [positions(in_log_order(batches, PIN, (lane, lanes))) for lane in range(lanes)]
    assert sorted(row for lane in found for row in lane) == sorted((p, o) for p, o, _ in rows)
    for lane in found:
        assert lane == sorted(lane)
    partitions = [{p for p, _ in lane} for lane in found]
    assert sum(map(len, partitions)) == len(set().union(*partitions))


def test_nothing_to_order():
    assert list(in_log_order([], PIN, (0, 2))) == []
    assert positions(in_log_order([batch([])], PIN, (0, 2))) == []


def test_large_lanes_leave_in_batches():
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([0] * 250_000, pa.int32()),
            pa.array(range(250_000), pa.int64()),
            pa.array([0] * 250_000, pa.int64()).cast(SCHEMA.field("i").type),
        ],
        schema=SCHEMA,
    )
    assert [len(found) for found in in_log_order([rows], PIN, (0, 1))] == [100_000, 100_000, 50_000]


def test_the_same_ingest_time_twice_is_in_order():
    assert read([(0, 2, 5), (0, 1, 5)]) == [(0, 1), (0, 2)]


def test_the_same_offset_in_two_partitions_is_no_offset_twice():
    assert read([(0, 1, 5), (1, 1, 4)]) == [(0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(3, 7, 5), (3, 8, 4)], "the ingest time goes backwards in partition 3 at offset 8"),
        ([(3, 7, 5), (3, 7, 5)], "an offset stands twice in partition 3 at offset 7"),
    ],
)
def test_a_log_that_is_none_is_refused_with_its_position(rows, message):
    with pytest.raises(SourceError) as raised:
        read([(2, 1, 9), *rows])
    assert raised.value.message == message
    assert raised.value.where == "stream changes"
    assert raised.value.facts == {"partition": 3, "offset": rows[1][1]}


@pytest.mark.parametrize("row", [(None, 5, 1), (1, None, 1)])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_row_without_a_position_is_not_lost(row, lanes):
    with pytest.raises(SourceError):
        for lane in range(lanes):
            read([(0, 1, 1), row], (lane, lanes))

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import HOUR, START, open_local
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import OUTPUT, BatchWriter, Target

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("at", TIME), ("id", pa.int64())])
RANGE = (START, START + 48 * HOUR)


@pytest.fixture
def catalog(tmp_path):
    return open_local(tmp_path)


def target(catalog, name, time="at", kept=RANGE):
    table = ensure_table(catalog, name, SCHEMA, time, "day")
    return pickle.loads(pickle.dumps(Target.of(table, time, kept)))


def batch(*rows):
    times, ids = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(times, pa.int64()).cast(TIME), ids], schema=SCHEMA)


def run(writer, *batches):
    """The results as the driver gets them."""
    return [row for found in writer(iter(batches)) for row in found.to_pylist()]


def committed(catalog, name, results):
    files = [pickle.loads(row["file"]) for row in results if row["file"] is not None]
    commit_files(catalog, name, BatchStamp("r", 0, {}, 0), files)
    return sorted(catalog.load_table(name).scan().to_arrow().column("id").to_pylist())


def test_only_rows_of_the_range_are_kept(catalog):
    rows = [(START - 1, 1), (START, 2), (RANGE[1] - 1, 3), (RANGE[1], 4), (None, 5)]
    results = run(BatchWriter({"output": target(catalog, "m.a")}), batch(*rows))
    assert sum(row["suppressed"] for row in results) == 3
    assert sum(row["rows"] for row in results) == 2
    assert committed(catalog, "m.a", results) == [2, 3]


def test_nothing_is_visible_before_the_commit(catalog):
    run(BatchWriter({"output": target(catalog, "m.a")}), batch((START, 1)))
    assert len(catalog.load_table("m.a").scan().to_arrow()) == 0


def test_files_are_split_by_the_table_s_partitions(catalog):
    rows = [(START + hour * HOUR, hour) for hour in range(0, 48, 12)]
    results = run(
        BatchWriter({"output": target(catalog, "m.a")}), batch(*rows[:2]), batch(*rows[2:])
    )
    assert sorted(row["rows"] for row in results) == [2, 2]
    assert committed(catalog, "m.a", results) == [0, 12, 24, 36]


def test_without_a_time_every_row_is_kept(catalog):
    writer = BatchWriter({"output": target(catalog, "m.a", time=None)})
    results = run(writer, batch((0, 1), (None, 2)))
    assert committed(catalog, "m.a", results) == [1, 2]


def test_several_outputs_are_told_apart(catalog):
    writer = BatchWriter({"a": target(catalog, "m.a"), "b": target(catalog, "m.b")})
    at = datetime(2026, 1, 1, 5, tzinfo=UTC)
    kind = pa.struct(list(SCHEMA))
    united = pa.RecordBatch.from_arrays(
        [
            pa.array(["a", "b", "a"]),
            pa.array([{"at": at, "id": 1}, None, {"at": at, "id": 3}], kind),
            pa.array([None, {"at": at, "id": 2}, None], kind),
        ],
        names=[OUTPUT, "a", "b"],
    )
    results = run(writer, united)
    assert committed(catalog, "m.a", [row for row in results if row["output"] == "a"]) == [1, 3]
    assert committed(catalog, "m.b", [row for row in results if row["output"] == "b"]) == [2]


def test_a_task_without_rows_writes_no_file(catalog):
    assert run(BatchWriter({"output": target(catalog, "m.a")})) == []

"""A source slice by slice, from the manifest to rows and side files, as Spark drives it."""

import json
import pickle
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import (
    HOUR,
    MINUTE,
    START,
    append_files,
    make_rows,
    open_local,
    pin_of,
    shuffled,
)
from tests.manifests import change, make_manifest
from tidemill.connectors.archives.opening import keep_metadata, open_reader, reopen_reader
from tidemill.errors import ConfigError, RunError, SourceError
from tidemill.planning.offsets import Offset
from tidemill.reading.options import SourceOptions
from tidemill.reading.sidefile import Counts, read_side_files
from tidemill.reading.slicing import Slicing
from tidemill.reading.task import read_task
from tidemill.rows.columns import MARK, META
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.types import FOREVER_MICROS

LATENESS, SKEW = 40 * MINUTE, 5_000
BOUNDARIES = (START, START + 7 * MINUTE, START + 31 * MINUTE, START + HOUR + 2_000)
PARTITIONS = 4


def make_log():
    """Rows with positions: some late, some without an event time, one from the future."""
    rows = make_rows(300)
    ids, at = rows.column("id").to_pylist(), rows.column("ingest").cast(pa.int64()).to_pylist()
    event = rows.column("event").cast(pa.int64()).to_pylist()
    event = [None if n % 50 == 7 else t for n, t in zip(ids, event, strict=True)]
    event[100], event[101], event[102] = at[100] + SKEW, at[101] + SKEW + 1, at[102] - LATENESS
    rows = rows.set_column(2, "event", pa.array(event, pa.int64()).cast(pa.timestamp("us", "UTC")))
    rows = rows.append_column("p", pa.array([n % PARTITIONS for n in ids], pa.int32()))
    return rows.append_column("o", pa.array([n // PARTITIONS for n in ids], pa.int64()))


LOG = make_log()


def verdicts():
    """The oracle: ids by verdict."""
    found = {"on_time": [], "late": [], "dead": []}
    micros = [LOG.column(name).cast(pa.int64()).to_pylist() for name in ("event", "ingest")]
    for number, (event, ingest) in enumerate(zip(*micros, strict=True)):
        if event is None:
            found["dead"].append(number)
        elif event - ingest <= SKEW and ingest - event <= LATENESS:
            found["on_time"].append(number)
        else:
            found["late"].append(number)
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    catalog = open_local(folder)
    table = catalog.create_table("archive.log", schema=LOG.schema)
    append_files(table, [shuffled(LOG).slice(0, 200), shuffled(LOG).slice(200)])
    return catalog, table


def start_run(lake, tmp_path, parallelism=3, **changes):
    """A run's folder as `prepare` leaves it, and its one source."""
    catalog, table = lake
    columns = changes.pop("columns", ("event", "id", "money"))
    pin = pin_of(table, lateness=LATENESS, skew=SKEW, columns=columns)
    run = {key: changes.pop(key) for key in ("output", "event_range_at_source") if key in changes}
    pin = change(pin, partition="p", offset="o", **changes)
    manifest = make_manifest(
        run="r",
        pipeline="p",
        created=0,
        boundaries=BOUNDARIES,
        sources={"log": pin},
        parallelism=parallelism,
        **{"output": (0, 1), **run},
    )
    folder = RunFolder(tmp_path / "run")
    folder.write_manifest(manifest)
    keep_metadata(pin, catalog, folder.table("log"))
    return folder, Slicing(SourceOptions(folder.path, "log"))


def read_all(slicing):
    """Every slice's batches, tasks read elsewhere."""
    return {
        (low, high): [
            batch
            for task in slicing.tasks(Offset("log", low), Offset("log", high))
            for batch in read_task(pickle.loads(pickle.dumps(task)))
        ]
        for low, high in pairwise(slicing.frontiers)
    }


def side_names(slicing, low, high):
    return slicing.side_names(Offset("log", low), Offset("log", high))


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist() if not row[MARK]]


@pytest.fixture(params=[1, 3], ids=["one task", "several tasks"])
def small_tasks(request, monkeypatch):
    """Tasks are worth their while from a few rows on, so that slices have several."""
    monkeypatch.setattr("tidemill.connectors.tasks._SMALL", 20)
    return request.param


@pytest.mark.parametrize("order", ["any", "position"])
def test_every_row_leaves_once_by_its_verdict(lake, tmp_path, small_tasks, order):
    folder, slicing = start_run(lake, tmp_path, small_tasks, order=order)
    found = read_all(slicing)
    expected = verdicts()
    on_time = [row["id"] for batches in found.values() for row in rows_of(batches)]
    assert sorted(on_time) == expected["on_time"]
    total, aside = Counts(), []
    for low, high in found:
        names = side_names(slicing, low, high)
        counts, rows = read_side_files(folder.side, names)
        total += counts
        aside += rows.to_pylist()
        written = (tmp_path / f"run/side/log/{low}-{high}").iterdir()
        assert {f"log/{low}-{high}/{path.name}" for path in written} == set(names)
    by_reason = Counter(row["reason"] for row in aside)
    assert by_reason == {"late": len(expected["late"]) - 1, "future": 1, "no event time": 6}
    assert sorted(json.loads(row["row"])["id"] for row in aside) == sorted(
        expected["late"] + expected["dead"]
    )
    assert (total.on_time, total.late, total.dead) == tuple(map(len, expected.values()))
    assert total.read == len(LOG)


def test_each_slice_carries_one_mark_behind_its_frontier(lake, tmp_path, small_tasks):
    _, slicing = start_run(lake, tmp_path, small_tasks)
    for (_, high), batches in read_all(slicing).items():
        rows = pa.Table.from_batches(batches)
        marks = rows.filter(rows.column(MARK))
        assert marks.column("event").cast(pa.int64()).to_pylist() == [high + SKEW - 1_000]
        assert marks.column("id").null_count == marks.column("money").null_count == 1


def test_read_again_a_slice_leaves_the_same_rows_and_counts(lake, tmp_path, small_tasks):
    _, slicing = start_run(lake, tmp_path, small_tasks)
    contents = []
    for _ in range(2):
        found = read_all(slicing)
        side = tmp_path / "run/side"
        names = sorted(str(path.relative_to(side)) for path in side.rglob("*.arrow"))
        told = [read_side_files(side.as_uri(), [name]) for name in names]
        assert {(counts.figures.tasks, counts.figures.seconds > 0) for counts, _ in told} == {
            (1, True)
        }
        assert sum(counts.figures.bytes for counts, _ in told) > 0
        contents.append((names, told, str(found)))
    assert contents[0] == contents[1]


def test_order_position_is_log_order_within_each_partition(lake, tmp_path, small_tasks):
    columns = ("event", "id", META)
    folder, slicing = start_run(
        lake, tmp_path, small_tasks, order="position", meta=True, columns=columns
    )
    last = {}
    for (low, high), batches in read_all(slicing).items():
        for row in rows_of(batches):
            meta = row[META]
            assert row["id"] == meta["offset"] * PARTITIONS + meta["partition"]
            assert meta["offset"] > last.get(meta["partition"], -1)
            last[meta["partition"]] = meta["offset"]
        counts, _ = read_side_files(folder.side, side_names(slicing, low, high))
        assert set(counts.positions) <= {"0", "1", "2", "3"}
    assert counts.positions["3"][1] == 74


def test_sinks_without_a_time_are_cut_by_event_time_at_the_source(lake, tmp_path):
    output = (START + 5 * MINUTE, START + 20 * MINUTE)
    folder, slicing = start_run(lake, tmp_path, output=output, event_range_at_source=True)
    events = LOG.column("event").cast(pa.int64()).to_pylist()
    inside = [n for n in verdicts()["on_time"] if output[0] <= events[n] < output[1]]
    found = read_all(slicing)
    assert sorted(row["id"] for b in found.values() for row in rows_of(b)) == inside
    names = [name for low, high in found for name in side_names(slicing, low, high)]
    counts, _ = read_side_files(folder.side, names)
    assert counts.suppressed == len(verdicts()["on_time"]) - len(inside)
    assert counts.on_time == len(verdicts()["on_time"])


def test_only_the_columns_of_the_pin_are_given(lake, tmp_path):
    _, slicing = start_run(lake, tmp_path, columns=("event", "country"))
    batches = read_all(slicing)[BOUNDARIES[:2]]
    assert {tuple(batch.schema.names) for batch in batches} == {("event", "country", MARK)}


def test_the_source_advances_as_far_as_it_is_released(lake, tmp_path):
    from tidemill.reading.datasource import SliceReader

    folder, slicing = start_run(lake, tmp_path)
    reader = SliceReader(SourceOptions(folder.path, slicing.source))

    def advance(frontier):
        start = {"source": slicing.source, "frontier": frontier}
        return reader.latestOffset(start, None)["frontier"]

    assert reader.initialOffset() == {"source": slicing.source, "frontier": START}
    assert advance(START) == BOUNDARIES[1]
    update_control(folder.path, released=BOUNDARIES[1])
    assert advance(BOUNDARIES[1]) == BOUNDARIES[1]
    update_control(folder.path, released=None)
    assert advance(BOUNDARIES[2]) == FOREVER_MICROS
    update_control(folder.path, paused=True)
    assert advance(START) == START


def test_no_slice_no_tasks(lake, tmp_path):
    _, slicing = start_run(lake, tmp_path)
    assert slicing.tasks(Offset("log", START), Offset("log", START)) == []


def test_a_run_reads_its_source_without_the_catalog(lake, tmp_path):
    folder, slicing = start_run(lake, tmp_path)
    pin = slicing.pin
    again = reopen_reader(pin, folder.table("log"), {})
    first = open_reader(pin, lake[0])
    assert again.schema() == first.schema()
    assert [e for _, e in again.extents(START, START + HOUR)] == [
        e for _, e in first.extents(START, START + HOUR)
    ]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "{",
    ],
)
def test_pinned_metadata_that_cannot_be_read_is_named(lake, tmp_path, content):
    folder, slicing = start_run(lake, tmp_path)
    path = folder.table("log")
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(RunError, match=r"metadata of archive\.log cannot be read") as raised:
        reopen_reader(slicing.pin, path, {})
    assert raised.value.where == str(path)


def test_a_kept_schema_is_the_tables_own(lake, tmp_path):
    folder, slicing = start_run(lake, tmp_path)
    first, kept = open_reader(slicing.pin, lake[0]).schema(), folder.table("log")
    assert slicing.archive.equals(first, check_metadata=True)
    assert reopen_reader(slicing.pin, kept, {}).schema().equals(first, check_metadata=True)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff" * 40])
def test_a_kept_schema_that_cannot_be_read_is_named(lake, tmp_path, content):
    folder, slicing = start_run(lake, tmp_path)
    path = folder.table("log").with_suffix(".arrow")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RunError, match=r"metadata of archive\.log cannot be read") as raised:
        reopen_reader(slicing.pin, folder.table("log"), {})
    assert raised.value.where == str(path)


def test_what_cannot_be_opened_is_named(lake):
    catalog, table = lake
    with pytest.raises(SourceError, match=r"the table 'archive\.lgo' does not exist") as raised:
        open_reader(pin_of(table, location="archive.lgo"), catalog)
    assert raised.value.fix == "did you mean 'archive.log'?"
    assert raised.value.where == "stream plays"
    with pytest.raises(ConfigError, match="unknown type 'tape'"):
        open_reader(pin_of(table, kind="tape"), catalog)

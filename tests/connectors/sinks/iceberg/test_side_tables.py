"""Tables of late and dead rows: made with the first row, exactly once, whatever dies meanwhile."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.cli.stage import T0, Stage, late_row
from tests.manifests import make_manifest
from tidemill.connectors.sinks.contract import SinkRun, open_places
from tidemill.connectors.sinks.iceberg import table as table_module
from tidemill.connectors.sinks.iceberg.table import SideTable, open_sides
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.errors import SinkError
from tidemill.iceberg.catalog import list_tables, open_catalog
from tidemill.rows.verdict import DEAD_SCHEMA, SIDE_SCHEMA
from tidemill.types import to_micros

LATE, DEAD = "marts.plays__late", "marts.plays__dead"
ROWS = pa.Table.from_pylist([late_row(20), late_row(30)], schema=SIDE_SCHEMA)
NONE = SIDE_SCHEMA.empty_table()


@pytest.fixture
def run(tmp_path: Path) -> SinkRun:
    loaded = Stage.make(tmp_path).project.loaded
    made = make_manifest(run="r1", late_table=LATE, dead_table=DEAD)
    return SinkRun(loaded, open_catalog(loaded), made, tmp_path)


def stamp(batch: int) -> BatchStamp:
    return BatchStamp("r1", batch, {"plays": batch}, 0)


def prepared(run: SinkRun, name: str = LATE) -> SideTable:
    """The table as the next driver opens it: with the stamp that the start check has seen."""
    sink = open_sides(run)[name]
    found = sink.stamps().get("r1")
    sink.prepare(None if found is None else found.stamp)
    return sink


def tables(run: SinkRun) -> list[str]:
    return [name for name in list_tables(run.catalog) if name.startswith("marts.plays")]


def test_a_table_is_made_with_its_first_row(run):
    late, dead = prepared(run), prepared(run, DEAD)
    for batch in range(3):
        late.append(stamp(batch), ROWS if batch else NONE)
        dead.append(stamp(batch), NONE)
        assert tables(run) == ([LATE] if batch else [])
    assert len(late.read()) == 4 and late.stamps()["r1"].stamp == stamp(2)


def test_a_missing_table_is_an_empty_one_for_everybody(run):
    for sink in (prepared(run), *open_places(run).values()):
        span = (0, to_micros(T0) + 1)
        none = DEAD_SCHEMA.empty_table() if sink.place == DEAD else NONE
        assert sink.read() == none and list(sink.scan(["reason"], None)) == []
        assert (sink.stamps(), sink.rows_in(span), sink.is_there()) == ({}, 0, False)
        sink.require_apart({})
    assert tables(run) == []


@pytest.mark.parametrize("dies", ["before the files", "before the commit", "after the commit"])
def test_a_batch_is_in_the_table_once_whenever_its_driver_dies(run, monkeypatch, dies):
    committed = table_module.commit_files

    def die(*given: object, **more: object) -> None:
        if dies == "after the commit":
            committed(*given, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        name = "write_files" if dies == "before the files" else "commit_files"
        patch.setattr(table_module, name, die)
        with pytest.raises(KeyboardInterrupt):
            prepared(run).append(stamp(0), ROWS)
    assert tables(run) == [LATE]
    again = prepared(run)
    again.append(stamp(0), ROWS)
    again.append(stamp(1), ROWS)
    assert len(again.read()) == 4
    assert len(run.catalog.load_table(LATE).metadata.snapshots) == 2


def test_a_driver_that_slept_does_not_write_behind_the_one_that_made_the_table(run):
    slept = prepared(run)
    awake = prepared(run)
    for batch in (0, 1):
        awake.append(stamp(batch), ROWS)
    with pytest.raises(SinkError, match="another driver of the run r1 has committed batch 1"):
        slept.append(stamp(0), ROWS)
    assert len(awake.read()) == 4


def test_two_runs_that_make_one_table_at_once(run):
    other = make_manifest(run="r2", late_table=LATE, dead_table=DEAD)
    beside = open_sides(SinkRun(run.loaded, run.catalog, other, run.folder))[LATE]
    ours = prepared(run)
    beside.prepare(None)
    ours.append(stamp(0), ROWS)
    beside.append(BatchStamp("r2", 0, {"plays": 0}, 0), ROWS)
    assert len(ours.read()) == 4 and set(ours.stamps()) == {"r1", "r2"}


def test_a_table_that_was_seen_is_not_made_again(run):
    """Its rows are gone: the driver must not go on as if there had been none."""
    sink = prepared(run)
    sink.append(stamp(0), ROWS)
    run.catalog.drop_table(LATE)
    with pytest.raises(NoSuchTableError):
        sink.append(stamp(1), ROWS)


def test_a_table_whose_columns_do_not_fit_is_refused_at_the_start(run):
    ensure_table(run.catalog, LATE, pa.schema([("key", pa.int64())]), None, "none")
    with pytest.raises(SinkError, match="does not fit the table"):
        prepared(run)


def test_a_dead_table_of_an_earlier_tidemill_gets_the_columns_that_it_lacks(run):
    ensure_table(run.catalog, DEAD, SIDE_SCHEMA, None, "none").append(ROWS)
    sink = prepared(run, DEAD)
    sink.append(
        stamp(0), pa.Table.from_pylist([{**late_row(40), "place": "f (a.py:1)"}], DEAD_SCHEMA)
    )
    assert sorted(map(str, sink.read()["place"].to_pylist())) == ["None", "None", "f (a.py:1)"]
    assert run.catalog.load_table(DEAD).schema().column_names == DEAD_SCHEMA.names

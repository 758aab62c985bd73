"""A driver does not start from a checkpoint that is older than what the run wrote."""

import json
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tests.manifests import change, make_manifest
from tidemill.config.pins import SinkPin
from tidemill.connectors.sinks.contract import SinkRun, open_places
from tidemill.connectors.sinks.iceberg.commit import BatchStamp
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.kafka.section import KafkaSink
from tidemill.errors import PlanError
from tidemill.planning.offsets import Offset
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.journal import Repeat, write_journal
from tidemill.runfolder.offset_log import read_batch
from tidemill.runtime.registry import BatchRecord, Registry
from tidemill.runtime.starts.standing import require_checkpoint, stamp_of

TABLE, LATE = "marts.plays", "marts.plays__late"
TOPIC = KafkaSink(type="kafka", brokers="b:1", topic="out")
TALKING = SimpleNamespace(
    config=SimpleNamespace(pipelines={"plays": SimpleNamespace(sinks={"o": TOPIC})})
)


class Stage:
    """A run with a checkpoint of some batches, two tables and a registry."""

    def __init__(self, folder):
        self.folder = RunFolder(folder / "runs" / "r1")
        self.catalog = open_local(folder)
        self.registry = Registry(folder / "registry.db")
        self.registry.add("r1", "plays", "live")
        sink = table_pin(TABLE, "{}", "t")
        self.manifest = make_manifest(
            run="r1",
            pipeline="plays",
            sinks={"output": sink},
            ends=False,
            late_table=LATE,
            dead_table="",
            asked={},
        )
        self.catalog.create_namespace_if_not_exists("marts")
        for name in (TABLE, LATE):
            self.catalog.create_table(name, pa.schema([("id", pa.int64())]))

    def write(self, batch, end, positions=None):
        """An entry of the offset log."""
        path = self.folder.checkpoint / "offsets" / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        offset = Offset("plays", end, positions or {"0": end})
        path.write_text(f'v1\n{{"batchWatermarkMs":{end}}}\n{json.dumps(offset.to_json())}')

    def commit(self, batch, table=TABLE):
        """A table gets the stamp of a batch, as its entry is now."""
        now = read_batch(self.folder.checkpoint, batch)
        before = read_batch(self.folder.checkpoint, batch - 1)
        self.stamp(stamp_of("r1", batch, before, now, {"plays": 0}), table)

    def stamp(self, stamp, table=TABLE):
        loaded = self.catalog.load_table(table)
        loaded.transaction().set_properties(stamp.as_property()).commit_transaction()

    def record(self, batch, frontier):
        self.registry.record_batch("r1", BatchRecord(batch, frontier, 0, 1, 0, 0, 1, 0, 0.0))

    def require(self, **changes):
        made = change(self.manifest, **changes)
        run = SinkRun(TALKING, self.catalog, made, self.folder.path)
        return require_checkpoint(made, self.folder, open_places(run), self.registry)


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    for batch in range(5):
        made.write(batch, 10 * (batch + 1))
        made.record(batch, 10 * (batch + 1))
    made.commit(1, LATE)
    made.commit(4)
    return made


def test_a_checkpoint_that_knows_all_is_taken(stage):
    stamps = stage.require()
    assert {name: stamp.batch for name, stamp in stamps.items()} == {TABLE: 4, LATE: 1}
    stage.write(5, 60)  # a batch that was decided, and committed nowhere
    assert stage.require() == stamps


def test_a_new_run_has_nothing_to_be_older_than(tmp_path):
    assert Stage(tmp_path).require() == {}


def test_a_table_that_is_missing_was_not_written(stage):
    stage.catalog.drop_table(LATE)
    assert list(stage.require()) == [TABLE]


def test_an_output_that_is_gone_is_not_made_anew(stage):
    """`shadows drop` of a run that was stopped: resumed, it would end without its first rows."""
    stage.catalog.drop_table(TABLE)
    with pytest.raises(PlanError, match=f"the table {TABLE}, which the run has written, is gone"):
        stage.require()
    with pytest.raises(PlanError) as found:
        stage.require(ends=True)
    assert "'tidemill cancel r1', and start the backfill again" in found.value.fix


def test_entries_that_spark_no_longer_keeps_are_not_missed(stage):
    (stage.folder.checkpoint / "offsets" / "1").unlink()
    (stage.folder.checkpoint / "offsets" / "0").unlink()
    assert set(stage.require()) == {TABLE, LATE}


def test_a_checkpoint_from_an_older_copy_is_refused(stage):
    for batch in (3, 4):
        (stage.folder.checkpoint / "offsets" / str(batch)).unlink()
    with pytest.raises(PlanError, match=r"marts\.plays has batch 4 of this run, but the") as raised:
        stage.require()
    assert "the checkpoint ends with batch 2" in raised.value.message
    assert raised.value.where == "run r1"
    assert "'tidemill run plays --recover-from-archive r1'" in raised.value.fix


def test_a_deleted_checkpoint_is_refused(stage):
    shutil.rmtree(stage.folder.checkpoint)
    with pytest.raises(PlanError, match="the checkpoint has none"):
        stage.require()


@pytest.mark.parametrize("what", ["frontier", "positions", "begin"])
def test_another_batch_under_the_same_number_is_refused(stage, what):
    if what == "frontier":
        stage.write(4, 51)
    elif what == "positions":
        stage.write(4, 50, {"0": 49})
    else:
        stage.write(3, 41)
    with pytest.raises(PlanError, match="has batch 4 of this run, but the checkpoint has another"):
        stage.require()


def test_a_source_that_had_not_begun_by_the_batch_before(stage):
    """Spark's entry does not name it then; the stamp says where it began."""
    stage.stamp(
        BatchStamp("r1", 4, {"plays": 50}, 50, {"plays": 40, "ads": 5}, {"plays": {"0": 50}})
    )
    assert stage.require()[TABLE].batch == 4


def repeats(*ends):
    return {3 + number: Repeat({"plays": end}, 0) for number, end in enumerate(ends)}


def test_batches_that_a_rewound_run_will_repeat_are_known(stage):
    write_journal(stage.folder.path, repeats(40, 50))
    (stage.folder.checkpoint / "offsets" / "4").unlink()  # the entry of batch 3 stays
    assert stage.require()[TABLE].batch == 4
    write_journal(stage.folder.path, repeats(40, 55))
    with pytest.raises(PlanError, match="before the rewind it ended elsewhere"):
        stage.require()


@pytest.mark.parametrize("left", [0, 3])
def test_a_rewound_run_that_lost_its_checkpoint_since_is_refused(stage, left):
    """The journal alone does not vouch: from nothing, the batches would get other numbers."""
    write_journal(stage.folder.path, repeats(40, 50))
    for batch in range(left, 5):
        (stage.folder.checkpoint / "offsets" / str(batch)).unlink()
    with pytest.raises(PlanError, match="older than what the run wrote"):
        stage.require()


def test_what_only_the_registry_knows_counts_too(stage):
    """A batch that committed nothing, or whose rows went to a topic."""
    stage.record(5, 60)
    with pytest.raises(PlanError, match="the registry knows batch 5 of this run, but the check"):
        stage.require()
    stage.write(5, 61)
    with pytest.raises(PlanError, match="in the checkpoint it ends elsewhere"):
        stage.require()
    stage.write(5, 60)
    assert stage.require()


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({"is_there": False}, "'tidemill archive run"),
        ({"ends": True}, "start the backfill again"),
        (
            {"sinks": {"o": SinkPin("kafka", "kafka:o", '{"fields": []}', own={"target": "o"})}},
            "new run with --from",
        ),
    ],
)
def test_the_way_out_fits_the_run(stage, changes, way):
    shutil.rmtree(stage.folder.checkpoint)
    with pytest.raises(PlanError) as raised:
        stage.require(**changes)
    assert way in raised.value.fix


def test_the_way_out_has_the_options_that_the_run_was_begun_with(stage):
    shutil.rmtree(stage.folder.checkpoint)
    asked = {"from": "2026-01-01", "into": "marts.x y", "region": ["eu", "us"]}
    with pytest.raises(PlanError) as raised:
        stage.require(asked=asked)
    options = "--into 'marts.x y' --region eu --region us"
    assert f"'tidemill run plays --recover-from-archive r1 {options}'" in raised.value.fix


def test_a_run_without_commits_begins_again_where_it_began(tmp_path):
    """There is nothing to recover from, and a run without --from would leave rows out."""
    stage = Stage(tmp_path)
    stage.record(0, 10)
    with pytest.raises(PlanError) as raised:
        stage.require(asked={"into": "marts.b"}, boundaries=(1_767_225_600_000_000, 2**53))
    assert "'tidemill cancel r1'" in raised.value.fix
    assert "'tidemill run plays --from 2026-01-01T00:00Z --into marts.b'" in raised.value.fix


def test_stamps_of_other_runs_do_not_matter(stage):
    stage.stamp(BatchStamp("r0", 99, {"plays": 990}, 0))
    assert stage.require()[TABLE].batch == 4

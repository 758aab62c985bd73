"""Replace a range of a real table by a shadow's rows, and put it back."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, StringType, TimestamptzType

from tests.connectors.archives.archives import delete_positions
from tests.connectors.sinks.iceberg.range_yard import (
    NAME,
    RUN,
    SHADOW,
    RangeYard,
    inside,
    outside,
    to_table,
)
from tidemill.archive.rewriting import ReplaceFiles
from tidemill.connectors.sinks.iceberg import dropping, production, range_rows, range_swap
from tidemill.connectors.sinks.iceberg.changes import tag_published
from tidemill.connectors.sinks.iceberg.production import IcebergProduction
from tidemill.connectors.sinks.replacing import Action
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import SinkError
from tidemill.iceberg.transaction import SteadyTransaction

OLD = [
    [(1, 1.0, "old"), (2, 9.999, "old")],  # before the range
    [(3, 9.5, "old"), (4, 10.0, "old"), (5, None, "old")],  # straddles its start
    [(6, 12.0, "old"), (7, 13.0, "old")],  # inside
    [(8, 14.0, "old"), (9, None, "old")],  # inside, but for a row without a time
    [(10, 19.999, "old"), (11, 20.0, "old")],  # straddles its end
    [(12, 5.0, "old"), (13, 25.0, "old")],  # around it, and none of its rows in it
]
NEW = [[(4, 10.0, "new"), (6, 12.0, "new")], [(20, 19.5, "new")]]


@pytest.fixture(params=["none", "day", "hour"])
def yard(tmp_path, request):
    made = RangeYard.make(tmp_path, request.param)
    made.put(NAME, *OLD)
    made.put(SHADOW, *NEW, run=RUN)
    return made


@pytest.fixture
def plain(tmp_path):
    made = RangeYard.make(tmp_path)
    made.put(NAME, *OLD)
    made.put(SHADOW, *NEW, run=RUN)
    return made


def flat(files):
    return sorted((row for rows in files for row in rows), key=repr)


def compacted(yard, name=NAME):
    """The same rows in one file, as engines compact them."""
    table = yard.catalog.load_table(name)
    rows = table.scan().to_arrow()
    transaction = SteadyTransaction(table)
    with ReplaceFiles(Operation.OVERWRITE, transaction, table.io) as update:
        for task in table.scan().plan_files():
            update.delete_data_file(task.file)
        for file in write_files(table.metadata, table.io, rows):
            update.append_data_file(file)
    transaction.commit_transaction()


def test_exactly_the_range_is_replaced_in_one_commit(yard):
    before = yard.catalog.load_table(NAME).metadata
    change = yard.production.publish(yard.asked())
    assert inside(yard.rows()) == flat(NEW)
    assert outside(yard.rows()) == outside(flat(OLD))
    after = yard.catalog.load_table(NAME).metadata
    assert len(after.snapshots) == len(before.snapshots) + 1
    assert (change.counts.rows_in, change.counts.rows_out) == (3, len(inside(flat(OLD))))
    assert (change.before, change.after) == (before.current_snapshot_id, after.current_snapshot_id)
    assert set(yard.paths(SHADOW)) <= set(yard.paths()), "by reference"
    assert change.counts.copied == 0
    yard.require_sound()
    assert yard.orphans() == []


def test_only_files_that_straddle_are_written_again(plain):
    looked = plain.production.look(plain.asked(), Action.PUBLISH)
    change = plain.production.publish(plain.asked())
    assert looked.counts == change.counts
    assert (change.counts.taken, change.counts.dropped, change.counts.rewritten) == (2, 1, 3)
    assert plain.production.look(plain.asked(), Action.PUBLISH).done == change


def test_a_repeat_changes_nothing(yard):
    change = yard.production.publish(yard.asked())
    state = yard.catalog.load_table(NAME).metadata
    assert yard.production.publish(yard.asked()) == change
    assert yard.catalog.load_table(NAME).metadata == state


def test_a_revert_puts_the_range_back_whatever_came_since(yard):
    yard.production.publish(yard.asked())
    yard.put(NAME, [(30, 20.5, "live")], [(31, 9.0, "live")])
    change = yard.production.revert(yard.asked())
    assert inside(yard.rows()) == inside(flat(OLD))
    came = [(30, 20.5, "live"), (31, 9.0, "live")]
    assert outside(yard.rows()) == sorted([*outside(flat(OLD)), *came], key=repr)
    assert yard.production.revert(yard.asked()) == change, "a repeat"
    yard.require_sound()
    again = yard.production.publish(yard.asked())
    assert (again.number, again.action) == (3, Action.PUBLISH)
    assert inside(yard.rows()) == flat(NEW)
    yard.production.revert(yard.asked())
    assert inside(yard.rows()) == inside(flat(OLD))
    yard.require_sound()
    assert yard.orphans() == []
    told = [(each.number, str(each.action)) for each in yard.production.changes()]
    assert told == [(1, "publish"), (2, "revert"), (3, "publish"), (4, "revert")]


def test_an_empty_shadow_empties_the_range(tmp_path):
    made = RangeYard.make(tmp_path)
    made.put(NAME, *OLD)
    made.production.publish(made.asked())
    assert inside(made.rows()) == []
    made.production.revert(made.asked())
    assert made.rows() == flat(OLD)


@pytest.mark.parametrize("rows", [NEW, []], ids=["rows", "nothing"])
def test_a_table_without_a_snapshot_takes_rows_and_gives_them_back(tmp_path, rows):
    made = RangeYard.make(tmp_path)
    if rows:
        made.put(SHADOW, *rows, run=RUN)
    made.production.publish(made.asked())
    assert made.rows() == flat(rows)
    made.production.revert(made.asked())
    assert made.rows() == []


def test_rows_that_changed_in_the_range_since_they_were_compared_are_not_lost(yard):
    asked = yard.asked(was_seen=True, seen=yard.snapshot(), seen_shadow=yard.snapshot(SHADOW))
    yard.put(NAME, [(40, 20.0, "live"), (41, 9.9, "live")])
    assert yard.production.look(asked, Action.PUBLISH).done is None, "it is outside of the range"
    yard.put(NAME, [(42, 19.0, "live"), (43, 21.0, "live")])
    state = yard.catalog.load_table(NAME).metadata
    for call in (
        lambda: yard.production.look(asked, Action.PUBLISH),
        lambda: yard.production.publish(asked),
    ):
        with pytest.raises(SinkError, match="rows of the range have changed since it was compared"):
            call()
    assert yard.catalog.load_table(NAME).metadata == state
    assert yard.orphans() == []
    yard.production.publish(replace(asked, changed=True))
    assert inside(yard.rows()) == flat(NEW)


def test_the_same_rows_in_other_files_are_no_change(yard):
    asked = yard.asked(was_seen=True, seen=yard.snapshot(), seen_shadow=yard.snapshot(SHADOW))
    yard.production.hold(asked.seen, RUN)
    compacted(yard)
    yard.production.publish(asked)
    assert inside(yard.rows()) == flat(NEW)
    assert outside(yard.rows()) == outside(flat(OLD))
    compacted(yard)
    yard.production.revert(asked)
    assert yard.rows() == flat(OLD)
    yard.require_sound()


def test_a_duplicate_of_a_row_is_a_change(plain):
    asked = plain.asked(was_seen=True, seen=plain.snapshot(), seen_shadow=plain.snapshot(SHADOW))
    plain.put(NAME, [(6, 12.0, "old")])
    with pytest.raises(SinkError, match="have changed"):
        plain.production.publish(asked)


def test_a_shadow_that_changed_since_it_was_compared_is_refused(plain):
    asked = plain.asked(was_seen=True, seen=plain.snapshot(), seen_shadow=plain.snapshot(SHADOW))
    plain.put(SHADOW, [(50, 15.0, "more")], run=RUN)
    with pytest.raises(SinkError, match="the shadow has changed since it was compared"):
        plain.production.publish(asked)


def test_a_state_that_was_compared_and_is_gone_is_refused(plain):
    asked = plain.asked(was_seen=True, seen=12345, seen_shadow=plain.snapshot(SHADOW))
    with pytest.raises(SinkError, match="the state of the table that was compared is gone"):
        plain.production.publish(asked)


def test_a_revert_after_another_publish_of_the_range_is_refused(plain):
    plain.production.publish(plain.asked())
    other = "20260102_120000_cd34"
    plain.catalog.rename_table(SHADOW, f"{NAME}__{other}")
    second = IcebergProduction(plain.catalog, NAME, f"{NAME}__{other}", "at")
    plain.put(f"{NAME}__{other}", [(60, 11.0, "second")], run=other)
    second.publish(plain.asked(run=other))
    with pytest.raises(SinkError, match="rows of the range have changed since it was published"):
        plain.production.revert(plain.asked())
    second.revert(plain.asked(run=other))
    assert inside(plain.rows()) == flat(NEW)
    plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD)


def test_what_was_compared_again_after_a_revert_or_before_it_is_accepted(plain):
    """compare, publish, compare again, revert, publish: the range is as it was looked at first."""
    plain.production.publish(plain.asked())
    seen = plain.asked(was_seen=True, seen=plain.snapshot(), seen_shadow=plain.snapshot(SHADOW))
    plain.production.revert(seen)
    plain.production.publish(seen)
    assert inside(plain.rows()) == flat(NEW)


def test_other_ids_of_columns_are_written_again(tmp_path):
    """A file is read by ids: a column that was dropped and made again has another one."""
    made = RangeYard.make(tmp_path)
    made.put(NAME, *OLD)
    table = made.catalog.load_table(NAME)
    with table.update_schema() as update:
        update.rename_column("word", "was")
    with table.update_schema() as update:
        update.add_column("word", StringType())
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("was")
    made.put(SHADOW, *NEW, run=RUN)
    change = made.production.publish(made.asked())
    assert (change.counts.taken, change.counts.copied) == (0, 2)
    assert inside(made.rows()) == flat(NEW)


def test_a_column_that_the_shadow_has_dropped_is_not_read_as_another_one(tmp_path):
    """It is still in the shadow's file, with an id that production has given to a new column."""
    made = RangeYard.make(tmp_path)
    made.put(NAME, *OLD)
    with made.catalog.load_table(SHADOW).update_schema() as update:
        update.add_column("secret", StringType())
    shadow = made.catalog.load_table(SHADOW)
    rows = to_table(flat(NEW))
    shadow.append(rows.append_column("secret", pa.array(["do not tell"] * len(rows))))
    with shadow.update_schema() as update:
        update.delete_column("secret")
    with made.catalog.load_table(NAME).update_schema() as update:
        update.add_column("note", StringType())
    made.production.publish(made.asked(other_schema=True))
    assert inside(made.rows()) == flat(NEW)
    assert set(made.catalog.load_table(NAME).scan().to_arrow().column("note").to_pylist()) == {None}


def test_a_required_column_that_the_shadow_may_lack_is_refused(plain):
    with plain.catalog.load_table(NAME).update_schema(allow_incompatible_changes=True) as update:
        update.add_column("must", LongType(), required=True, default_value=1)
    with pytest.raises(SinkError, match="must is required in the table"):
        plain.production.publish(plain.asked(other_schema=True))


def test_rows_that_were_deleted_do_not_come_with_their_file(plain):
    """Of the shadow, and of the state before, which a revert puts back."""
    for name, number in ((NAME, 6), (SHADOW, 4)):
        (path,) = (each for each in plain.paths(name) if number in ids_of(each))
        at = {path: [ids_of(path).index(number)]}
        delete_positions(plain.catalog.load_table(name), at)
    old = plain.rows()
    plain.production.publish(plain.asked())
    assert inside(plain.rows()) == [row for row in flat(NEW) if row[0] != 4]
    plain.production.revert(plain.asked())
    assert plain.rows() == old


def test_another_partitioning_is_written_again(tmp_path):
    made = RangeYard.make(tmp_path, "day")
    made.put(NAME, *OLD)
    with made.catalog.load_table(NAME).update_spec() as update:
        update.add_identity("word")
    made.put(SHADOW, *NEW, run=RUN)
    change = made.production.publish(made.asked())
    assert change.counts.taken == 0
    assert inside(made.rows()) == flat(NEW)
    made.production.revert(made.asked())
    assert made.rows() == flat(OLD)


def test_other_columns_are_refused_until_they_are_accepted(plain):
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.add_column("more", LongType())
    with plain.catalog.load_table(SHADOW).update_schema() as update:
        update.add_column("new", StringType())
    with pytest.raises(SinkError, match="new would be added to the table; more would be null"):
        plain.production.publish(plain.asked())
    looked = plain.production.look(plain.asked(other_schema=True), Action.PUBLISH)
    assert len(looked.columns) == 2
    assert "new" not in plain.catalog.load_table(NAME).schema().column_names, "it was a look"
    plain.production.publish(plain.asked(other_schema=True))
    assert inside(plain.rows()) == flat(NEW)
    assert {"new", "more"} <= set(plain.catalog.load_table(NAME).schema().column_names)


def test_other_types_are_refused_in_any_case(plain):
    with plain.catalog.load_table(NAME).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("word")
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.add_column("word", LongType())
    with pytest.raises(SinkError, match=r"word is .*string in the shadow and int64 in the table"):
        plain.production.publish(plain.asked(other_schema=True))


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda yard: yard.catalog.drop_table(NAME), f"the table '{NAME}' is not there"),
        (lambda yard: yard.catalog.drop_table(SHADOW), "is gone"),
        (
            lambda yard: [
                Path(path.removeprefix("file://")).unlink() for path in yard.paths(SHADOW)
            ],
            "2 files with rows of the range are gone",
        ),
    ],
)
def test_what_is_gone_is_said(plain, break_it, why):
    break_it(plain)
    with pytest.raises(SinkError, match=why):
        plain.production.publish(plain.asked())


def test_a_table_without_the_time_column_is_refused(plain):
    other = replace(plain.production, time="word")
    with pytest.raises(SinkError, match=r"no timestamps .string. in the column 'word'"):
        other.publish(plain.asked())
    with pytest.raises(SinkError, match="has no column 'when'"):
        replace(plain.production, time="when").publish(plain.asked())
    with pytest.raises(SinkError, match="has no time"):
        replace(plain.production, time=None).publish(plain.asked())


def test_a_revert_by_another_column_of_the_time_s_name_is_refused(plain):
    """All old rows are null in it: the revert would find none, and say that it is done."""
    plain.production.publish(plain.asked())
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.rename_column("at", "then")
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.add_column("at", TimestamptzType())
    with pytest.raises(SinkError, match="the column 'at' is another one than that of the publish"):
        plain.production.revert(plain.asked())
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.rename_column("at", "other")
    with plain.catalog.load_table(NAME).update_schema() as update:
        update.rename_column("then", "at")
    plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD)


def set_back(yard, snapshot):
    yard.catalog.load_table(NAME).manage_snapshots().set_current_snapshot(snapshot).commit()


def test_a_revert_that_was_rolled_back_leaves_what_was_before_the_publish(plain):
    """Published again, the range would become its own state of before."""
    published = plain.production.publish(plain.asked())
    plain.production.revert(plain.asked())
    set_back(plain, published.after)
    assert plain.production.publish(plain.asked()) == published, "it is in again"
    reverted = plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD) and reverted.number == 3
    table = set_back(plain, published.after) or plain.catalog.load_table(NAME)
    table.maintenance.expire_snapshots().by_id(reverted.after).commit()  # nobody knows of it
    plain.production.publish(plain.asked())
    plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD)


def test_a_revert_of_what_was_rolled_back_says_so(plain):
    before = plain.snapshot()
    plain.production.publish(plain.asked())
    set_back(plain, before)
    with pytest.raises(SinkError, match="was rolled back: the table has its state of before"):
        plain.production.revert(plain.asked())


def test_a_rollback_is_found_though_the_snapshots_since_are_expired(plain):
    before = plain.snapshot()
    plain.production.publish(plain.asked())
    set_back(plain, before)
    for number in range(40):
        plain.put(NAME, [(100 + number, 30.0, "live")])
    metadata = plain.catalog.load_table(NAME).metadata
    assert len(metadata.snapshots) < 30, "the run has expired its own"
    assert plain.production.done(RUN, Action.PUBLISH) is None
    plain.production.publish(plain.asked())
    assert inside(plain.rows()) == flat(NEW)


def test_a_table_without_sequence_numbers_can_be_rolled_back(tmp_path):
    made = RangeYard.make(tmp_path)
    schema = made.catalog.load_table(NAME).schema()
    made.catalog.drop_table(NAME)
    made.catalog.create_table(NAME, schema, properties={"format-version": "1"})
    made.put(NAME, *OLD)
    made.put(SHADOW, *NEW, run=RUN)
    before = made.snapshot()
    made.production.publish(made.asked())
    set_back(made, before)
    made.production.publish(made.asked())
    assert inside(made.rows()) == flat(NEW)
    made.production.revert(made.asked())
    assert made.rows() == flat(OLD)


def test_a_revert_needs_the_published_state_only_to_look(plain):
    """Its tag was removed by hand, and an expiry has taken it; that of before is still there."""
    published = plain.production.publish(plain.asked())
    table = plain.catalog.load_table(NAME)
    table.manage_snapshots().remove_tag(tag_published(RUN)).commit()
    plain.put(NAME, [(90, 25.0, "live")])
    table = plain.catalog.load_table(NAME)
    table.maintenance.expire_snapshots().by_id(published.after).commit()
    with pytest.raises(SinkError, match="that was published is gone: snapshot") as found:
        plain.production.revert(plain.asked())
    assert found.value.fix == "--changed goes on without looking"
    plain.production.revert(plain.asked(changed=True))
    assert inside(plain.rows()) == inside(flat(OLD))


def test_tags_do_not_go_by_the_age_that_the_table_gives_its_refs(plain):
    plain.production.publish(plain.asked())
    refs = plain.catalog.load_table(NAME).metadata.refs
    ages = [ref.max_ref_age_ms for name, ref in refs.items() if RUN in name]
    assert len(ages) == 2 and min(ages) > 10**15


def test_a_revert_without_a_publish_is_refused(plain):
    with pytest.raises(SinkError, match="was never published"):
        plain.production.revert(plain.asked())


def test_a_large_file_is_written_again_in_parts(plain, monkeypatch):
    monkeypatch.setattr(range_rows, "_FLUSH_BYTES", 0)
    plain.production.publish(plain.asked())
    assert outside(plain.rows()) == outside(flat(OLD))


def test_a_file_that_a_delete_still_names_does_not_come_back_as_it_is(plain):
    """pyiceberg applies a delete to a file by its path, also to one that is newer than it."""
    plain.production.publish(plain.asked())
    table = plain.catalog.load_table(NAME)
    files = {task.file.file_path for task in table.scan().plan_files()}
    (lent,) = files & {path for path in plain.paths(SHADOW) if 20 in ids_of(path)}
    delete_positions(table, {lent: [0]})
    assert inside(plain.rows()) == NEW[0]
    plain.production.revert(plain.asked(changed=True))
    change = plain.production.publish(plain.asked())
    assert inside(plain.rows()) == flat(NEW), "the shadow's rows, and its file is copied"
    assert (change.counts.taken, change.counts.copied) == (0, 2)
    plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD)


def ids_of(path):
    return pq.read_table(path.removeprefix("file://")).column("id").to_pylist()


def test_files_without_statistics_are_read(tmp_path):
    made = RangeYard.make(tmp_path)
    for name in (NAME, SHADOW):
        with made.catalog.load_table(name).transaction() as change:
            change.set_properties({"write.metadata.metrics.default": "none"})
    made.put(NAME, *OLD)
    made.put(SHADOW, *NEW, run=RUN)
    made.production.publish(made.asked())
    assert inside(made.rows()) == flat(NEW)
    assert outside(made.rows()) == outside(flat(OLD))
    made.production.revert(made.asked())
    assert made.rows() == flat(OLD)


def test_a_dropped_shadow_leaves_the_files_that_production_has(plain):
    plain.put(SHADOW, [(70, 15.0, "new")], run=RUN)
    plain.production.publish(plain.asked())
    plain.production.revert(plain.asked())
    plain.production.publish(plain.asked())
    rows = plain.rows()
    plain.production.drop_shadow(RUN)
    assert not plain.catalog.table_exists(SHADOW)
    assert plain.rows() == rows
    plain.require_sound()
    assert not [tag for tag in plain.catalog.load_table(NAME).metadata.refs if RUN in tag]
    plain.production.drop_shadow(RUN)
    assert plain.rows() == rows, "once more does no harm"


def test_a_dropped_shadow_that_was_never_published_goes_wholly(plain):
    files = [path.removeprefix("file://") for path in plain.paths(SHADOW)]
    assert plain.production.drop_shadow(RUN) > 0
    assert not any(Path(path).exists() for path in files)
    assert plain.rows() == flat(OLD)


def test_a_tagged_state_outlives_the_run_s_own_tidying(plain):
    """Fifty commits expire the snapshots before them, but not those that a revert needs."""
    asked = plain.asked(was_seen=True, seen=plain.snapshot(), seen_shadow=plain.snapshot(SHADOW))
    plain.production.hold(asked.seen, RUN)
    for hour in range(30):
        plain.put(NAME, [(100 + hour, 30.0 + hour, "live")])
    assert len(plain.catalog.load_table(NAME).metadata.snapshots) < 25
    plain.production.publish(asked)
    for hour in range(30):
        plain.put(NAME, [(200 + hour, 30.0 + hour, "live")])
    plain.production.revert(asked)
    assert inside(plain.rows()) == inside(flat(OLD))
    plain.require_sound()


@pytest.mark.parametrize("calls", range(3))
def test_a_drop_that_is_killed_is_finished_by_the_next(plain, monkeypatch, calls):
    plain.put(SHADOW, [(70, 15.0, "new")], run=RUN)
    plain.production.publish(plain.asked())
    rows, left = plain.rows(), [calls]
    real = dropping.delete_files

    def delete(io, files):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(io, files)

    with monkeypatch.context() as patch:
        patch.setattr(dropping, "delete_files", delete)
        with pytest.raises(KeyboardInterrupt):
            plain.production.drop_shadow(RUN)
    plain.production.drop_shadow(RUN)
    assert plain.rows() == rows and not plain.catalog.table_exists(SHADOW)
    plain.require_sound()


def test_a_clock_that_was_set_back_does_not_hide_the_last_change(plain, monkeypatch):
    plain.production.publish(plain.asked())
    real = production.time.time_ns
    monkeypatch.setattr(production.time, "time_ns", lambda: real() - 10**15)
    plain.production.revert(plain.asked())
    assert plain.rows() == flat(OLD)
    assert plain.production.publish(plain.asked()).number == 3
    assert inside(plain.rows()) == flat(NEW)


def test_credentials_of_one_table_do_not_open_files_of_another(plain, monkeypatch):
    monkeypatch.setattr(range_swap.Vending, "of", lambda table: "handed out by table")
    change = plain.production.publish(plain.asked())
    assert (change.counts.taken, change.counts.copied) == (0, 2)
    assert plain.production.revert(plain.asked()).counts.taken == 1, "its own files"
    assert plain.rows() == flat(OLD)


def test_a_snapshot_that_is_expired_while_files_are_cleared_away_is_no_error(plain, monkeypatch):
    """The rows are in then: the call must say so."""
    Path(plain.asked().journal).write_text("file:///nowhere/left.parquet\n")
    left = [2]
    real = range_rows.named_files

    def names(table):
        if left[0]:
            left[0] -= 1
            raise FileNotFoundError("a manifest")
        return real(table)

    monkeypatch.setattr(range_rows, "named_files", names)
    plain.production.publish(plain.asked())
    assert inside(plain.rows()) == flat(NEW)
    assert not Path(plain.asked().journal).exists()

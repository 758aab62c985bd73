"""What a run that goes on for a lost one discards: all that the lost one gave, and nothing else."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.planning.test_manifest import manifest
from tests.sources.archives import open_local
from tidemill.errors import PlanError
from tidemill.planning.manifest import Leg, LivePin, SinkPin, SourcePin, Stamp
from tidemill.planning.offsets import BatchOffsets
from tidemill.runtime.recovery import find_lost, is_given, recover
from tidemill.sinks.commit import BatchStamp

LATER = Stamp({"a": 20, "b": 25}, {"a": 10, "b": 15}, 7, {"a": {"0": 3}, "b": {"0": 4}})
CLOSING = replace(LATER, before=LATER.frontiers, watermark=17)
FIRST = replace(LATER, watermark=0)


@pytest.mark.parametrize(
    ("stamp", "batch", "given"),
    [
        (LATER, (10, 15, 7, False), True),
        (LATER, (20, 15, 7, True), True),  # one source is not there yet
        (LATER, (20, 25, 7, True), True),
        (LATER, (20, 25, 17, False), False),
        (LATER, (30, 35, 17, True), False),
        (CLOSING, (20, 25, 7, True), True),
        (CLOSING, (20, 25, 17, False), True),
        (CLOSING, (20, 25, 18, False), False),
        (FIRST, (20, 25, 7, True), True),  # a run's first batch has no watermark, its replay has
        (FIRST, (20, 25, 17, False), False),
    ],
)
def test_what_a_batch_gives_is_there_if_it_is_not_after_the_last_commit(stamp, batch, given):
    a, b, watermark, took = batch
    assert is_given(stamp, at({"a": a, "b": b}, watermark), took=took) is given


def test_a_use_that_is_ahead_is_after_the_commit():
    """Another use of the source stands where the commit was; what the first gives is new."""
    assert not is_given(LATER, BatchOffsets({"a": (20, 30), "b": (25,)}, 7, {}), took=True)
    assert is_given(LATER, BatchOffsets({"a": (10, 20), "b": (25,)}, 7, {}), took=True)


def at(frontiers, watermark):
    return BatchOffsets({name: (found,) for name, found in frontiers.items()}, watermark, {})


def lost():
    live = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=0)
    pin = SourcePin("a", "iceberg", "t", "e", "i", 0, 0, (), live=live, leg=Leg(100))
    sinks = {name: SinkPin(f"marts.{name}", "t", "none", "{}") for name in ("one", "two")}
    return manifest(
        sources={"a": pin, "b": replace(pin, stream="b")}, sinks=sinks, boundaries=(5, 100)
    )


@pytest.mark.parametrize("stamp", [LATER, CLOSING, FIRST])
def test_a_table_without_a_commit_may_lack_the_last_batch_but_no_other(stamp):
    """The driver may have died after the commit of one table, before the first of another."""
    found = recover(lost(), {"marts.one": stamp}).discard
    assert found["marts.one"] == stamp
    took = stamp is not CLOSING
    last = at(stamp.frontiers, 7 if took else stamp.watermark)
    for name in ("marts.two", "x"):  # and the late and dead tables
        assert not is_given(found[name], last, took=took)
        assert is_given(found[name], at(stamp.before, 7), took=True)
        assert is_given(found["marts.one"], last, took=took)


def test_slices_between_the_commits_of_two_tables_are_not_one():
    """One table was last written long before the other; only what a commit took stays whole."""
    old = Stamp({"a": 12, "b": 12}, {"a": 8, "b": 9}, 7, {})
    new = replace(LATER, frontiers={"a": 90, "b": 90}, before={"a": 80, "b": 81})
    made = replace(lost(), boundaries=(5, 10, 20, 30, 60, 85, 100))
    found = recover(made, {"marts.one": old, "marts.two": new})
    legs = {name: pin.leg.boundaries for name, pin in found.sources.items()}
    assert legs["a"] == (5, 8, 12, 20, 30, 60, 80, 90)
    assert legs["b"] == (5, 9, 12, 20, 30, 60, 81, 90)
    assert [step["a"] for step in found.steps] == [8, 12, 80, 90]


def test_a_commit_while_two_uses_stood_apart_is_refused(tmp_path):
    catalog = open_local(tmp_path)
    table = catalog.create_table("archive.t", pa.schema([("id", pa.int64())]))
    stamp = BatchStamp("r1", 3, {"a": 20}, 7, apart=("a",))
    with table.transaction() as change:
        change.set_properties(stamp.as_property())
    with pytest.raises(PlanError, match="the uses of a stood at different places"):
        find_lost(catalog, ["archive.t"], "r1")

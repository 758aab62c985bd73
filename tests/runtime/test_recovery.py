"""What a run that goes on for a lost one discards: all that the lost one gave, and nothing else."""

from dataclasses import replace

import pytest

from tests.planning.test_manifest import manifest
from tidemill.planning.manifest import Leg, LivePin, SinkPin, SourcePin, Stamp
from tidemill.runtime.recovery import is_given, recover

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
    assert is_given(stamp, {"a": a, "b": b}, watermark, took=took) is given


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
    is_closing = stamp is CLOSING
    last = (stamp.frontiers, stamp.watermark if is_closing else 7)
    before = (stamp.before, 7)
    for name in ("marts.two", "x"):  # and the late and dead tables
        assert not is_given(found[name], *last, took=not is_closing)
        assert is_given(found[name], *before, took=True)
        assert is_given(found["marts.one"], *last, took=not is_closing)

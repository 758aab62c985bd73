"""What a run that goes on for a lost one discards: all that the lost one gave, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tests.manifests import change, make_manifest, make_pin
from tidemill.connectors.sinks.contract import SinkRun, open_places
from tidemill.connectors.sinks.iceberg.commit import BatchStamp
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.errors import PlanError
from tidemill.planning.cuts import Cut
from tidemill.planning.manifest import HistoryPhase, LivePin, Manifest
from tidemill.planning.offsets import BatchOffsets
from tidemill.rows.verdict import CLOCK, SIDE_SCHEMA
from tidemill.runtime.starts.recovery import (
    Lost,
    clock_rows,
    cuts_of,
    find_lost,
    not_given_aside,
    recover,
)
from tidemill.types import from_micros

MS = 1_000
BEFORE = {"a": 10 * MS, "b": 15 * MS}
NOW = {"a": 20 * MS, "b": 25 * MS}
DATA = BatchStamp(
    "r", 7, NOW, 9, before=BEFORE, closed=(4, 9), positions={"a": {"0": 3}, "b": {"0": 4}}
)
CLOSING = replace(DATA, batch=8, before=NOW, watermark=19, closed=(9, 19))
TABLES = ("one", "two", "late")
OUTPUTS = {"one", "two"}


def test_a_table_has_all_before_the_newest_batch_and_that_one_if_it_has_its_stamp():
    """Whatever it was stamped with before: in between there was nothing for it."""
    old = replace(DATA, batch=2, frontiers=BEFORE, closed=(1, 2))
    cuts = cuts_of({"one": DATA, "two": old}, TABLES, OUTPUTS)
    assert cuts == {"one": Cut(NOW, 9), "two": Cut(BEFORE, 4), "late": Cut(BEFORE, 4)}


def test_a_late_row_after_a_batch_without_rows_moves_the_cut_of_every_table():
    """The output was stamped by the batch without rows, the late table by the next one."""
    after = replace(DATA, batch=9, frontiers={"a": 30 * MS, "b": 35 * MS}, before=NOW)
    after = replace(after, watermark=19, closed=(19, 19))
    cuts = cuts_of({"one": CLOSING, "two": DATA, "late": after}, TABLES, OUTPUTS)
    assert cuts["one"] == cuts["two"] == Cut(NOW, 19)
    assert cuts["late"] == Cut(after.frontiers, 19)


def lost_plan() -> Manifest:
    live = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=0)
    pin = make_pin("a", live=live, phase=HistoryPhase(100 * MS))
    sinks = {name: table_pin(name, "{}", "t") for name in ("one", "two")}
    edges = tuple(at * MS for at in (5, 7, 9, 12, 18, 24, 40, 100))
    return make_manifest(
        sources={"a": pin, "b": replace(pin, stream="b")},
        sinks=sinks, boundaries=edges, late_table="late", dead_table="dead", spare=0,
    )  # fmt: skip


def test_one_source_is_held_so_that_the_batch_gets_the_watermark_it_had():
    lost = Lost("r", {"one": Cut(NOW, 9), "two": Cut(BEFORE, 4)}, DATA)
    found = recover(lost_plan(), lost)
    assert found.times.steps == (
        {"a": 5 * MS, "b": 15 * MS},  # the watermark is 4 now
        BEFORE,
        {"a": 10 * MS, "b": 25 * MS},  # and 9 now, as it was at the step before
        NOW,
    )
    phases = {
        name: [at // MS for at in pin.phase.boundaries] for name, pin in found.sources.items()
    }
    assert phases == {"a": [4, 5, 10, 20], "b": [4, 5, 7, 9, 12, 15, 18, 24, 25]}
    assert found.sources["a"].phase.positions == {"0": 3}
    assert (found.identity.origin.recovers, found.outputs.discard) == ("r", lost.cuts)


def test_a_batch_without_rows_is_waited_for():
    """Its watermark is the one of the frontiers themselves: no slice leads to it."""
    lost = Lost("r", dict.fromkeys(("one", "two"), Cut(NOW, 19)), CLOSING)
    assert recover(lost_plan(), lost).times.steps == (NOW,)


def test_a_watermark_that_lagged_behind_is_met_or_refused():
    """After a restart Spark's watermark waits for every source."""
    one = Lost("r", dict.fromkeys(("one", "two"), Cut(NOW, 4)), DATA)
    assert recover(lost_plan(), one).times.steps == ({"a": 5 * MS, "b": 25 * MS}, NOW)
    both = Lost("r", {"one": Cut(BEFORE, 4), "two": Cut(NOW, 4)}, DATA)
    with pytest.raises(PlanError, match="cannot be told apart"):
        recover(lost_plan(), both)


def test_late_rows_are_told_apart_by_their_ingest_time():
    rows = pa.Table.from_pylist(
        [
            {"source": source, "reason": "late", "ingest_time": from_micros(at * MS), "offset": at}
            for source, at in (("a", 12), ("b", 12), ("a", 9), ("b", 25), ("a", 20))
        ],
        SIDE_SCHEMA,
    )
    cut = Cut({"a": 10 * MS, "b": 25 * MS}, 0)
    fresh = not_given_aside(cut, BatchOffsets({"a": (5 * MS,), "b": (5 * MS,)}, 0, {}), rows)
    assert [(row["source"], row["offset"]) for row in fresh.to_pylist()] == [
        ("a", 12), ("b", 25), ("a", 20),
    ]  # fmt: skip
    beyond = BatchOffsets({"a": (10 * MS,), "b": (25 * MS,)}, 0, {})
    assert not_given_aside(cut, beyond, rows) == rows  # rows behind a live frontier are new
    assert not_given_aside(None, None, rows) == rows


@pytest.fixture
def catalog(tmp_path):
    made = open_local(tmp_path)
    for name in ("one", "two", "late"):
        made.create_table(f"archive.{name}", SIDE_SCHEMA)
    return made


def stamped(catalog, **stamps):
    for name, stamp in stamps.items():
        with catalog.load_table(f"archive.{name}").transaction() as change:
            change.set_properties(stamp.as_property())


def plan():
    made = lost_plan()
    sinks = {name: table_pin(f"archive.{name}", "{}", "t") for name in made.outputs.sinks}
    return change(made, sinks=sinks, late_table="archive.late", dead_table="archive.dead")


def places(catalog):
    return open_places(SinkRun(None, catalog, plan(), Path()))


def test_a_run_that_went_on_for_a_lost_one_may_be_lost_itself(catalog):
    """It discarded what the first had given: no stamp of its own tells that."""
    first = replace(DATA, run="r0")
    early = {"a": 8 * MS, "b": 9 * MS}
    second = BatchStamp("r1", 3, BEFORE, 4, before=early, closed=(2, 4), recovers="r0")
    stamped(catalog, one=first, two=second)
    found = find_lost(places(catalog), plan(), "r1")
    assert found.cuts["archive.one"] == Cut(NOW, 9)
    assert found.cuts["archive.two"] == Cut(BEFORE, 4)
    assert found.end.run == "r0"  # it was further, and knows where the live log goes on


def test_a_run_that_somebody_went_on_for_is_not_recovered_again(catalog):
    """What its successor has given since is in the tables; only the successor's stamp says so."""
    stamped(catalog, one=DATA)
    stamped(catalog, one=replace(CLOSING, run="next", recovers="r"))
    with pytest.raises(PlanError, match="the run next went on for r") as raised:
        find_lost(places(catalog), plan(), "r")
    assert "--recover-from-archive next" in raised.value.fix
    assert find_lost(places(catalog), plan(), "next").run == "next"


def test_a_backfill_is_never_the_lost_run(catalog):
    stamped(catalog, one=DATA)
    with pytest.raises(PlanError, match="is a backfill"):
        find_lost(places(catalog), plan(), "r", {"r"})
    with pytest.raises(PlanError, match="commit of any run"):
        find_lost(places(catalog), plan(), "latest", {"r"})


@pytest.mark.parametrize(
    ("stamp", "why"),
    [
        (replace(DATA, apart=("a",)), "the uses of a stood at different places"),
        (replace(DATA, apart_before=("b",)), "the uses of b stood at different places"),
        (replace(DATA, closed=()), "made by an earlier Tidemill"),
    ],
)
def test_a_commit_that_does_not_tell_its_cut_is_refused(catalog, stamp, why):
    stamped(catalog, one=stamp)
    with pytest.raises(PlanError, match=why):
        find_lost(places(catalog), plan(), "r")


def test_how_the_uses_stood_before_matters_only_to_a_table_that_lacks_the_last_batch(catalog):
    stamp = replace(DATA, apart_before=("b",))
    stamped(catalog, one=stamp, two=stamp)
    assert find_lost(places(catalog), plan(), "r").cuts["archive.one"] == Cut(NOW, 9)


def test_rows_behind_the_clock_are_counted_in_the_late_table(catalog):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"source": "a", "reason": why, "ingest_time": at} for why in (CLOCK, "late", CLOCK)]
    catalog.load_table("archive.late").append(pa.Table.from_pylist(rows, SIDE_SCHEMA))
    assert clock_rows(catalog, "archive.late") == 2
    assert clock_rows(catalog, "archive.none") == 0

"""A feed of files: its frontier, its verdicts, and what happens to requests that lead nowhere."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connectors.logs.feeds import (
    BEGIN,
    COLUMNS,
    REQUESTS_SLACK,
    FakeTopic,
    Yard,
    feed_pin,
    times,
    write_file,
)
from tests.manifests import change
from tidemill.connectors.logs.files.log import FeedLog
from tidemill.planning.plan import Beginning
from tidemill.rows.verdict import CLOCK
from tidemill.runfolder.lag import read_lag
from tidemill.types import MILLISECOND, SECOND

FORMATS = ("parquet", "csv", "json")


def test_a_feed_begins_before_all_files_or_where_its_promise_allows():
    topic = FakeTopic()
    topic.ask({"uri": "a"})
    topic.clock += 60 * SECOND

    def first_frontier(begin, slack):
        log = FeedLog(feed_pin(slack=slack), topic)
        log.look()
        return log.first_frontier(begin, clock=0)

    assert first_frontier(Beginning.LATEST, None) == 0
    assert first_frontier(Beginning.EARLIEST, None) == 0
    assert first_frontier(Beginning.LATEST, 10 * SECOND) == topic.clock - 11 * SECOND
    assert first_frontier(Beginning.EARLIEST, 10 * SECOND) == BEGIN - 10 * SECOND


@pytest.mark.parametrize("form", FORMATS)
def test_files_in_event_order_give_all_their_rows(form, tmp_path):
    yard = Yard(tmp_path)
    for n in range(4):
        yard.ask(f"{n}.{form}", times(*(n * 10 + k for k in range(10))), first=n * 10)
        yard.later()
        assert yard.feed.step()
        assert yard.feed.at.frontier == BEGIN + (n * 10 + 9) * SECOND + MILLISECOND
        assert not yard.feed.step()  # idle: the frontier is the last finished file's
    assert yard.ids() == list(range(40))
    assert yard.feed.aside == []
    row = yard.feed.rows[0]
    assert set(row) == {*COLUMNS, "_tidemill_mark"}


@pytest.mark.parametrize("form", FORMATS)
def test_rows_behind_the_reach_are_late_never_lost(form, tmp_path):
    yard = Yard(tmp_path, lateness=5 * SECOND)
    yard.ask(f"a.{form}", times(0, 10))
    yard.ask(f"b.{form}", times(4, 5, 11), first=2)
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1, 3, 4]
    (late,) = yard.feed.aside
    assert late["reason"] == CLOCK and json.loads(late["row"])["id"] == 2
    assert late["offset"] == 1_000_000_000 and late["partition"] == 0
    assert yard.feed.counts.read == 5 == yard.feed.counts.on_time + yard.feed.counts.late


def test_a_column_of_the_file_is_the_ingest_time(tmp_path):
    yard = Yard(tmp_path, ingest_time="ingest_ts", lateness=3 * SECOND, skew=SECOND)
    events, ingests = times(0, 1, 2, 9, 4), [*times(1, 5, 3, 6), None]
    yard.ask("a.parquet", events, ingests)
    yard.ask("b.parquet", times(2, 4, 7), times(4, 5, 8), first=10)
    yard.later()
    yard.feed.all()
    reasons = {json.loads(row["row"])["id"]: row["reason"] for row in yard.feed.aside}
    assert reasons == {1: "late", 3: "future", 4: "no ingest time", 10: CLOCK}
    assert yard.ids() == [0, 2, 11, 12]  # 11: its own time lies behind, its event is still awaited
    assert yard.feed.at.frontier == BEGIN + 8 * SECOND + MILLISECOND


def test_the_frontier_follows_the_clock_while_no_request_is_open(tmp_path):
    yard = Yard(tmp_path, begin=BEGIN, slack=60 * SECOND)
    assert yard.feed.step()
    clock = yard.topic.clock - REQUESTS_SLACK
    assert yard.feed.at.frontier == clock - 60 * SECOND
    assert not yard.feed.step()
    yard.later(30)
    at = [yard.topic.clock - age * SECOND for age in (59, 20, 10)]
    yard.ask("a.csv", at)
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1, 2]
    assert yard.feed.at.frontier == at[-1] + MILLISECOND
    yard.later(600)
    assert yard.feed.step()
    assert yard.feed.at.frontier == yard.topic.clock - REQUESTS_SLACK - 60 * SECOND


def test_a_file_slower_than_the_slack_loses_rows_to_late_only(tmp_path):
    yard = Yard(tmp_path, begin=BEGIN, slack=60 * SECOND)
    yard.later(600)
    yard.feed.all()
    now = yard.topic.clock
    yard.ask("a.json", [now - 90 * SECOND, now - 30 * SECOND])
    yard.later()
    yard.feed.all()
    assert yard.ids() == [1]
    assert [row["reason"] for row in yard.feed.aside] == [CLOCK]


def test_a_slice_waits_for_other_sources_but_is_never_cut_inside_a_file(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0, 500))
    yard.ask("b.json", times(600), first=2)
    yard.later()
    assert yard.feed.decide(widest=0) is None
    assert yard.feed.step(widest=SECOND)
    assert yard.ids() == [0, 1]
    assert yard.feed.at.positions == {"0": 1}


def test_max_rows_ends_a_slice_after_a_file(tmp_path):
    yard = Yard(tmp_path, begin=BEGIN, max_rows=5)
    for n in range(6):
        yard.ask(f"{n}.json", times(n, n, n), first=n * 3)
    yard.later()
    yard.feed.all()
    assert [len(rows) for *_, rows, _ in yard.feed.passed] == [6, 6, 6]
    assert yard.ids() == list(range(18))


def test_requests_that_were_not_taken_hold_the_clock(tmp_path):
    yard = Yard(tmp_path, begin=BEGIN, slack=60 * SECOND, max_rows=1)
    for n in range(3):
        now = yard.topic.clock
        yard.ask(f"{n}.json", [now - 59 * SECOND, now - 55 * SECOND], first=2 * n)
        yard.later(10)
    yard.later(600)
    yard.feed.all()
    assert yard.ids() == list(range(6)) and yard.feed.aside == []


@pytest.mark.parametrize("slack", [None, 60 * SECOND])
def test_a_long_backlog_in_one_partition_does_not_let_another_overtake(
    tmp_path, monkeypatch, slack
):
    monkeypatch.setattr("tidemill.connectors.logs.files.log._MOST", 3)
    yard = Yard(tmp_path, begin=BEGIN, partitions=2, slack=slack)
    for n in range(20):
        moment = yard.topic.clock - 59 * SECOND
        yard.ask(f"{n}.json", [moment], first=n, partition=int(n % 10 == 9))
        yard.later(0 if n % 3 else 2)
    yard.later(600)
    yard.feed.all()
    assert yard.ids() == list(range(20)) and yard.feed.aside == []


def test_a_rate_makes_the_feed_rest(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0, 1))
    yard.ask("b.json", times(2))
    yard.later()
    end = yard.feed.decide(rate=1)
    assert end is not None and end.positions == {"0": 1}
    yard.feed.at = end
    assert yard.feed.decide(rate=1) is None


def test_to_says_how_far_a_file_reaches_and_holds_it_to_that(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.csv", times(1, 2, 9), to="2026-01-01T00:00:05Z")
    yard.later()
    yard.feed.all()
    assert yard.ids() == [0, 1]
    (dead,) = yard.feed.aside
    assert dead["reason"] == "not before the request's to"
    assert yard.feed.at.frontier == BEGIN + 5 * SECOND


def test_files_of_one_request_do_not_wait_behind_each_other(tmp_path):
    yard = Yard(tmp_path)
    write_file(yard.files / "eu.csv", times(0, 9))
    write_file(yard.files / "us.parquet", times(1, 8), first=2)
    yard.topic.ask({"uri": ["eu.csv", (yard.files / "us.parquet").as_uri()]})
    yard.ask("next.json", times(9, 10), first=4)
    yard.later()
    yard.feed.all()
    assert yard.ids() == list(range(6)) and yard.feed.aside == []


def test_a_slice_is_read_again_as_it_was_decided(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0, 1))
    yard.topic.ask({"uri": "gone.json"})
    yard.later()
    yard.feed.step()
    start, end, rows, aside = yard.feed.passed[0]
    write_file(yard.files / "gone.json", times(1))  # it came, but too late for its request
    again = yard.run("one")
    again.at = start
    assert again.decide() == end
    assert again.read(start, end, tasks=1) == (rows, aside)
    reader, loads = again.slices.share(start, end, 2)
    pickle.loads(pickle.dumps((reader, loads)))


def test_a_filter_keeps_rows_but_never_hides_a_dead_request(tmp_path):
    yard = Yard(tmp_path)
    yard.pin = change(yard.pin, where="ingest_ts > '2026-01-01T00:00:01+00:00'")
    yard.feed = yard.run("filtered")
    yard.ask("a.json", times(0, 1, 2, 3))
    yard.topic.ask({"uri": "gone.json"})
    yard.later()
    yard.feed.all()
    assert yard.ids() == [2, 3] and yard.feed.counts.dead == 1


def test_requests_of_several_partitions_are_one_log(tmp_path):
    yard = Yard(tmp_path, partitions=3)
    for n in range(12):
        yard.ask(f"{n}.json", times(n), first=n, partition=n * 7 % 3)
        yard.later(0.5)
    yard.later()
    yard.feed.all()
    assert yard.ids() == list(range(12)) and yard.feed.aside == []
    assert yard.feed.at.positions == {"0": 4, "1": 4, "2": 4}


def test_a_hidden_request_holds_the_ones_after_it(tmp_path):
    yard = Yard(tmp_path, partitions=2)
    yard.topic.stable = {0: 0}
    yard.ask("a.json", times(0), partition=0)
    yard.later(0.1)
    yard.ask("b.json", times(1), first=1, partition=1)
    yard.later()
    assert not yard.feed.step()
    yard.topic.stable = {}
    yard.feed.all()
    assert yard.ids() == [0, 1] and yard.feed.aside == []


def test_status_knows_which_requests_are_done(tmp_path):
    yard = Yard(tmp_path)
    yard.ask("a.json", times(0))
    asked = yard.topic.clock
    yard.later()
    yard.feed.decide()
    assert read_lag(yard.feed.run, "views").done == asked
    yard.feed.step()
    yard.feed.decide()
    assert read_lag(yard.feed.run, "views").done == yard.topic.clock - REQUESTS_SLACK
    assert read_lag(yard.feed.run, "views").rows == {"0": 0}


def test_lists_are_forgotten_with_their_slices(tmp_path):
    yard = Yard(tmp_path)
    for n in range(5):
        yard.ask(f"{n}.json", times(n), first=n)
        yard.later()
        yard.feed.step()
    yard.feed.decided_slices.forget(yard.feed.passed[3][0].frontier)
    yard.ask("5.json", times(5), first=5)
    yard.later()
    yard.feed.step()
    assert len(yard.feed.slices.lists.folder.names()) == 3


@settings(max_examples=40)
@given(data=st.data())
def test_any_slicing_of_a_feed_gives_the_same_rows(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("feed")
    slack = data.draw(st.sampled_from([None, 20 * SECOND]))
    lateness = data.draw(st.sampled_from([0, 2 * SECOND]))
    yard = Yard(folder, begin=BEGIN if slack else 0, slack=slack, lateness=lateness, partitions=2)
    for number in range(data.draw(st.integers(1, 6))):
        ages = data.draw(st.lists(st.integers(0, 30), max_size=4))
        events = [yard.topic.clock - age * SECOND for age in ages]
        name = f"{number}.{data.draw(st.sampled_from(FORMATS))}"
        yard.ask(name, events, first=number * 10, partition=data.draw(st.integers(0, 1)))
        yard.later(data.draw(st.integers(0, 10)))
        for _ in range(data.draw(st.integers(0, 1))):
            yard.feed.step(tasks=data.draw(st.integers(1, 3)))
    yard.later(30)
    yard.feed.all()
    whole = yard.run("two")
    whole.all()
    assert sorted(map(str, whole.rows)) == sorted(map(str, yard.feed.rows))
    assert sorted(map(str, whole.aside)) == sorted(map(str, yard.feed.aside))
    assert whole.counts.read == yard.feed.counts.read

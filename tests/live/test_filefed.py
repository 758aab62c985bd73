"""A feed of files on a real broker: beside a busy topic, and alone over old files."""

import os
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.live.feedyard import OUTPUTS, SECOND, Busy, FeedYard
from tests.live.yard import columns, cut
from tidemill.errors import PlanError, SourceError
from tidemill.project import Until
from tidemill.reading.slicing import Slicing
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import latest_entry
from tidemill.runtime.driving.frames import Work
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
FORMATS = ("parquet", "csv", "json")
KEYS = ("kind", "window_start", "rows", "sum")


def views(yard, count, number, since=None):
    """A file of what happened since the last one, requested at once; returns its newest time."""
    now = datetime.now(UTC)
    step = (now - (since or now - SECOND)) / count
    rows = [yard.row("view", now - n * step) for n in range(count)]
    yard.ask({"uri": yard.write(f"{number}.{FORMATS[number % 3]}", rows)})
    return rows[0]["event_ts"]


def assert_counted(yard, name, until, after=None):
    expected = yard.expected(until, after)
    for output in OUTPUTS[name]:
        found = columns(yard.table(f"marts.{name}_{output}"), *KEYS)
        found = cut(found, after, until, "window_start")
        assert_same_rows(found, expected, output)
    return expected


class Watched:
    """A run that is stopped when its frontier has passed a moment, and not before."""

    def __init__(self, project):
        self.project, self.run, self.frontier = project, "", datetime(1970, 1, 1, tzinfo=UTC)
        self.goal = datetime.max.replace(tzinfo=UTC)
        self.begun, self.deadline = threading.Event(), time.monotonic() + 200

    def see(self, progress):
        self.frontier = from_micros(progress.totals.frontier)
        self.begun.set()
        if self.frontier >= self.goal or time.monotonic() > self.deadline:
            self.project.stop(progress.manifest.run)


def test_a_feed_beside_a_busy_topic_holds_nothing_back(tmp_path, broker, topic, spark):
    yard = FeedYard(tmp_path, broker, topic, slack="3 s")
    project = yard.project
    watched, busy, last = Watched(project), Busy(yard), []

    def drive():
        assert watched.begun.wait(120)
        busy.start()
        for number in range(6):
            last.append(views(yard, 40, number, *last[-1:]))
            time.sleep(0.5)
        watched.goal = last[-1] + 5 * SECOND  # and no more requests

    driver = threading.Thread(target=drive)
    driver.start()
    first = project.run("beside", on_progress=watched.see, spark=spark)
    driver.join()
    busy.rest.set()
    busy.join()
    assert first.totals.late == first.totals.dead == 0
    closed = from_micros(first.totals.frontier) - 2 * SECOND
    assert closed > last[-1] + 2 * SECOND, "an idle feed held the busy topic's windows back"
    found = assert_counted(yard, "beside", closed)
    assert any(row["window_start"] > last[-1] for row in found)

    (yard.files / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    bad = [b"what?", {"uri": "gone.csv"}, {"uri": "torn.parquet"}, {"uri": "../tidemill.yaml"}]
    yard.ask(*bad)
    last.append(views(yard, 40, 6))
    yard.play(5)
    watched.goal = last[-1] + 4 * SECOND
    again = project.resume(first.run, on_progress=watched.see, spark=spark)
    assert again.totals.late == 0 and again.totals.dead == len(bad)
    reasons = sorted(row["reason"] for row in yard.table(again.dead))
    parts = ("not a request", "outside the root", "the parquet file", "there is no file")
    for reason, part in zip(reasons, parts, strict=True):
        assert part in reason
    closed = from_micros(again.totals.frontier) - 2 * SECOND
    assert closed > last[-1] + SECOND
    assert_counted(yard, "beside", closed)
    assert again.totals.on_time == len(yard.made)


def decide(project, run):
    """Decide the next slice of a run that is not driven, as its driver would before it died."""
    folder = RunFolder.of(project.loaded.home, run)
    work = Work(project.loaded, folder.read_manifest(), folder)
    slicing = Slicing(work.options("views"))
    start = latest_entry(folder.checkpoint).ends["views"]
    while slicing.route.next(start, None, slicing.live.decide) == start:
        time.sleep(0.1)
    return slicing.route.decided_slices.after(start.frontier)


@contextmanager
def changed(path, decided):
    """A file that is another one for a while."""
    assert decided.positions
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content + b" ")
    yield
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_old_files_in_event_order_are_on_time_however_long_they_take(
    tmp_path, broker, topic, spark
):
    yard = FeedYard(tmp_path, broker, topic)
    begin = datetime(2025, 3, 1, tzinfo=UTC)
    ends = []

    def ask(number):
        start = begin + number * timedelta(minutes=10)
        rows = [yard.row("view", start + n * SECOND / 7) for n in range(100)]
        ends.append(rows[-1]["event_ts"])
        yard.ask({"uri": yard.write(f"{number}.{FORMATS[number % 3]}", rows)})

    for number in range(3):
        ask(number)
    project = yard.project
    first = project.run("alone", begin="earliest", until=Until(caught_up=True), spark=spark)
    assert from_micros(first.totals.frontier) == ends[-1] + timedelta(milliseconds=1)
    assert_counted(yard, "alone", ends[-1] - SECOND)
    for number in range(3, 6):
        ask(number)
    decided = decide(project, first.run)
    with (
        changed(yard.files / "3.parquet", decided),
        pytest.raises(SourceError, match=r"3\.parquet: the file changed"),
    ):
        project.resume(first.run, until=Until(caught_up=True), spark=spark)
    again = project.resume(first.run, until=Until(caught_up=True), spark=spark)
    assert again.totals.on_time == 600 and again.totals.late == again.totals.dead == 0
    assert_counted(yard, "alone", ends[-1] - SECOND)


def test_what_a_feed_cannot_do_is_said_when_it_is_planned(tmp_path, broker, topic, spark):
    yard = FeedYard(tmp_path, broker, topic)
    with pytest.raises(PlanError, match="needs a slack"):
        yard.project.plan_run("beside", spark=spark)
    with pytest.raises(PlanError, match="read on request"):
        yard.project.plan_run("alone", "2026-01-01T00:00Z", spark=spark)
    with pytest.raises(PlanError, match="no history to backfill from"):
        yard.project.plan("alone", "2026-01-01T00:00Z", "2026-01-02T00:00Z", spark=spark)

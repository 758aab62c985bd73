"""What a person sees on stderr while a run runs: in a pipe, line by line."""

import io

import pytest
from rich.console import Console

from tests.manifests import make_manifest
from tidemill.cli import progress
from tidemill.cli.progress import ProgressLine
from tidemill.runtime.registry import RunTotals
from tidemill.runtime.reports.activity import Activity, ActivityKind, telling
from tidemill.runtime.reports.results import Progress

MANIFEST = make_manifest(run="r", pipeline="p", created=0, output=(0, 100), boundaries=(0, 50, 100))


def reading(number: int, rows: int, planned: int | None = 1_000) -> Activity:
    share = (number - 1) / 2 + rows / 2_000
    return Activity(ActivityKind.READING, number, 2, rows, planned, share)


def done(frontier: int) -> Progress:
    return Progress(MANIFEST, RunTotals(1, frontier, 0, on_time=frontier * 20), None)


def shown(*news: Activity | Progress, terminal: bool = False) -> str:
    """What stands on stderr after all of it was drawn, one after the other."""
    line = ProgressLine()
    out = io.StringIO()
    line.console = Console(file=out, force_terminal=terminal, width=120)
    line._bar.live.console = line.console
    for each in news:
        (line.show if isinstance(each, Progress) else line.tell)(each)
        batch, doing = line._next()
        if batch is not None:
            line._draw_batch(batch)
        for activity in doing:
            line._draw_activity(activity)
    return out.getvalue()


def test_every_step_of_a_start_and_the_first_slice_is_a_line_at_once():
    lines = shown(
        Activity(ActivityKind.PLANNING),
        Activity(ActivityKind.ANALYSING),
        Activity(ActivityKind.STARTING),
        Activity(ActivityKind.CHECKING),
        reading(1, 0),
        done(50),
    ).splitlines()
    assert lines[:4] == [
        "analysing the code",
        "starting Spark",
        "checking the code",
        "slice 1/2  0%  reading about 1,000 rows",
    ]
    assert lines[4].startswith("slice 1/2  50%  1,000 rows, ")
    assert len(lines) == 5


def test_in_the_middle_of_a_slice_there_is_a_line_every_few_seconds(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    line, out = ProgressLine(), io.StringIO()
    line.console = Console(file=out, width=120)
    for second in range(12):
        clock[0] = 100.0 + second
        line._draw_activity(reading(1, second * 10))
    assert out.getvalue().splitlines() == [
        "slice 1/2  0%  reading about 1,000 rows",
        "slice 1/2  3%  reading, 60 of about 1,000 rows",
    ]


def test_a_slice_whose_rows_nobody_planned_is_live():
    live = Activity(ActivityKind.READING, 3, 2, 1_234, None, 1.0)
    assert shown(live) == "live  reading, 1,234 rows\n"


def test_a_terminal_gets_a_bar_and_no_lines():
    assert shown(Activity(ActivityKind.STARTING), reading(1, 5), terminal=True) == ""


def test_news_that_were_not_drawn_yet_are_replaced_by_newer_ones():
    line = ProgressLine()
    for rows in range(100):
        line.tell(reading(1, rows))
    line.tell(Activity(ActivityKind.CHECKING))
    assert [each.kind for each in line._next()[1]] == ["reading", "checking the code"]
    line.tell(reading(1, 7))
    line.show(done(50))
    line.tell(reading(2, 0))
    batch, doing = line._next()
    assert batch is not None and [each.slice for each in doing] == [2]


def test_a_listener_that_fails_is_not_called_again(caplog):
    calls = []

    def fail(activity: Activity) -> None:
        calls.append(activity)
        raise ValueError("no")

    tell = telling(fail)
    tell(reading(1, 0))
    tell(reading(1, 1))
    assert len(calls) == 1
    assert "on_activity failed" in caplog.text


@pytest.mark.parametrize(
    ("activity", "text"),
    [
        (Activity(ActivityKind.STARTING), "<Activity starting Spark>"),
        (reading(1, 5), "<Activity reading: slice 1/2; rows 5; planned about 1,000>"),
        (reading(1, 5, None), "<Activity reading: slice 1/2; rows 5>"),
    ],
)
def test_an_activity_is_a_short_line(activity, text):
    assert repr(activity) == text

"""What people see of a live run."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tidemill.cli.render import show_result
from tidemill.runfolder.lag import Lag
from tidemill.runtime.registry import RunState, RunTotals
from tidemill.runtime.reports.results import Phase, RunResult
from tidemill.types import SECOND, parse_instant, to_micros

AT = to_micros(parse_instant("2026-01-01T10:00Z"))
LIVE = RunResult(
    "r1", "p", RunState.RUNNING, {}, "", "", RunTotals(watermark=AT // 1_000, batches=1), 1, 1, 9.0,
    phase=Phase("live", {}, {"plays": Lag(AT, AT - 2 * SECOND, {"0": 1})}, clock=1),
)  # fmt: skip


def shown(result):
    out = Console(file=StringIO(), width=200, record=True)
    show_result(result, out)
    return out.export_text()


def test_the_lag_of_a_run_that_does_not_read_says_of_when_it_is():
    assert "1 row behind, 2.0 s" in shown(LIVE)
    assert "when it stopped" not in shown(LIVE)
    for state in (RunState.PAUSED, RunState.STOPPED, RunState.FAILED):
        told = shown(replace(LIVE, state=state))
        assert "when it stopped (2026-01-01T10:00Z)" in told


def test_a_live_run_has_a_watermark_and_counts_single_rows():
    assert "watermark 2026-01-01T10:00Z" in shown(LIVE)
    assert "not exact: 1 row came behind" in shown(LIVE)


@pytest.mark.parametrize(
    ("upgrading", "next_step"),
    [(False, "next: tidemill resume r1"), (True, "'tidemill status plays' shows which one")],
)
def test_a_run_that_an_upgrade_stopped_does_not_ask_to_be_resumed(upgrading, next_step):
    told = shown(replace(LIVE, state=RunState.STOPPED, name="plays", upgrading=upgrading))
    assert next_step in told
    assert ("tidemill resume" in told) is not upgrading

"""Requests: when a run without an end stops by itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill.errors import PlanError
from tidemill.planning.requests import Goal, Until, request, run_request
from tidemill.types import BEGINNING, FOREVER, SECOND, to_micros

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT, HOUR = to_micros(NOW), 3_600 * SECOND


@pytest.mark.parametrize(
    ("complete", "frontier"),
    [(None, AT), (AT - HOUR, AT - HOUR), (AT + HOUR, AT)],
    ids=["a log of which the clock tells", "a table that stands still", "a table that is ahead"],
)
def test_caught_up_is_what_the_log_had(complete: int | None, frontier: int) -> None:
    assert Until(caught_up=True).goal(NOW, complete) == Goal(frontier=frontier)


def test_a_moment_is_waited_for_whatever_the_log_says() -> None:
    later = NOW + timedelta(hours=1)
    assert Until(moment=later).goal(NOW, AT - HOUR) == Goal(frontier=AT + HOUR)
    assert Until("5 s", later, caught_up=True).goal(NOW, AT - HOUR) == Goal(5.0, AT + HOUR)


def test_only_a_while_is_no_frontier() -> None:
    assert Until("1 min").goal(NOW) == Goal(60.0)


def test_a_rate_is_whole_rows() -> None:
    """A manifest keeps it as a whole number."""
    assert request("p", BEGINNING, FOREVER, rate=1e3).rate == 1_000
    for rate in (0, -1, 0.5):
        with pytest.raises(PlanError, match=f"--rate {rate} is not a positive number"):
            request("p", BEGINNING, FOREVER, rate=rate)


def test_an_option_that_is_none_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PlanError, match="there is no option 'slise'") as raised:
        request("p", BEGINNING, FOREVER, slise="1 h")
    assert raised.value.fix == "did you mean 'slice'?"
    with pytest.raises(PlanError, match="there is no option 'trigger'"):
        request("p", BEGINNING, FOREVER, trigger="1 s")
    assert run_request("p", None, trigger="1 s").trigger == timedelta(seconds=1)
    with pytest.raises(PlanError, match="there is no option 'live'"):
        run_request("p", None, live="latest")


def test_output_may_begin_after_history() -> None:
    early = NOW - timedelta(hours=3)
    asked = run_request("p", early, emit_from="2026-01-01T11:00Z")
    assert asked.output(NOW).start == NOW - timedelta(hours=1)
    assert asked.range.start == early
    assert run_request("p", early, emit_from="now").output(NOW).start == NOW
    assert run_request("p", early).output(NOW).start == early
    with pytest.raises(PlanError, match=r"is before --from 2026-01-01T12:00Z"):
        run_request("p", NOW, emit_from=early)
    with pytest.raises(PlanError, match="without --from none is read"):
        run_request("p", None, emit_from="now")
    with pytest.raises(PlanError, match="there is no option 'emit_from'"):
        request("p", early, NOW, emit_from="now")


@pytest.mark.parametrize("given", [{"start": NOW}, {"begin": "earliest"}])
def test_a_state_says_itself_where_the_run_begins(given: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="--state says itself where the run begins"):
        run_request("p", **{"start": None, "state": "file", **given})
    assert run_request("p", None, state="file").state == "file"

"""`tidemill rate` and `wait`, over runs put together by hand. No Spark."""

import json
import threading
import time

import pytest

from tests.bad_input.terminal import run_cli
from tests.cli.stage import Stage
from tidemill.errors import RequestError, RunError
from tidemill.runfolder.control import read_control
from tidemill.runfolder.lease import hold_lease, hold_watch
from tidemill.runtime.registry import RunState

RUN = "20260101_000000_aaaa"


@pytest.fixture
def stage(tmp_path):
    made = Stage.make(tmp_path)
    made.run(RUN, [], on_time=10)
    return made


def test_a_rate_is_an_order_that_waits_for_the_next_driver(stage):
    stage.project.registry.set_state(RUN, RunState.STOPPED)
    told = stage.cli("rate", RUN, "20_000").out
    assert told == f"run {RUN} reads at most 20,000 rows per second when it goes on\n"
    folder = stage.project._folder(RUN).path
    assert read_control(folder).rate == 20_000
    stage.project.registry.set_state(RUN, RunState.RUNNING)
    with hold_lease(folder, RUN):
        told = stage.cli("rate", RUN, "off").out
    assert told == f"run {RUN} reads as many rows per second as it can from its next slice on\n"
    assert read_control(folder).rate == 0
    assert json.loads(stage.cli("rate", RUN, "5", "--json").out)["run"] == RUN


def test_a_run_whose_driver_died_is_said_to_be_dead(stage):
    stage.project.registry.set_state(RUN, RunState.RUNNING)
    assert "is not running, it is failed" in stage.cli("pause", RUN).err


@pytest.mark.parametrize("rows", ["0", "-5", "fast", "1.5", ""])
def test_a_rate_that_is_none(stage, rows):
    found = stage.cli("rate", RUN, "--", rows)
    assert found.code == 2 and f"{rows!r} is not a number of rows per second" in found.err


def test_who_takes_no_rate(stage):
    with pytest.raises(RequestError, match="there is no run 'nightly'"):
        stage.project.rate("nightly", 5)
    with pytest.raises(RequestError, match="-5 is not a positive number"):
        stage.project.rate(RUN, -5)
    stage.project.registry.set_state(RUN, RunState.FINISHED)
    with pytest.raises(RunError, match="is finished: it reads nothing any more"):
        stage.project.rate(RUN, 5)


@pytest.mark.parametrize(
    ("state", "code"), [("finished", 0), ("failed", 1), ("cancelled", 3), ("stopped", 130)]
)
def test_waiting_ends_as_the_run_did(stage, state, code):
    stage.project.registry.set_state(RUN, RunState(state))
    found = stage.cli("wait", RUN, "--json")
    assert found.code == code and json.loads(found.out)["state"] == state
    assert stage.cli("wait", RUN).code == code


def test_waiting_ends_when_the_run_does(stage):
    folder, registry = stage.project._folder(RUN).path, stage.project.registry

    def drive():
        with hold_lease(folder, RUN):
            registry.set_state(RUN, RunState.RUNNING)
            held.set()
            time.sleep(1.2)
            registry.set_state(RUN, RunState.FINISHED)

    held = threading.Event()
    driver = threading.Thread(target=drive)
    driver.start()
    held.wait()
    began = time.monotonic()
    short = run_cli("wait", RUN, "--timeout", "300ms", cwd=stage.project.loaded.path.parent)
    assert (short.code, short.out) == (124, "")
    assert short.err == f"run {RUN} is still running after 0.3 s\n"
    told = stage.cli("wait", RUN, "--timeout", "100ms", "--json")
    assert told.code == 124
    assert json.loads(told.out)["timed_out"] is True
    assert stage.cli("wait", RUN, "--timeout", "30s").code == 0
    assert 1.0 < time.monotonic() - began < 10
    driver.join()


def test_a_run_that_its_supervisor_will_start_again_goes_on(stage):
    stage.project.registry.set_state(RUN, RunState.FAILED, "no space")
    with hold_watch(stage.project._folder(RUN).path, RUN):
        assert stage.project.wait(RUN, 0.1) is None
    ended = stage.project.wait(RUN, 0.1)
    assert ended is not None and ended.exit_code == 1


def test_a_driver_that_died_is_no_reason_to_wait(stage):
    stage.project.registry.set_state(RUN, RunState.RUNNING)
    found = stage.cli("wait", RUN)
    assert found.code == 1 and "its driver died" in found.out


def test_a_rate_below_zero_is_a_number_that_is_refused(tmp_path):
    stage = Stage.make(tmp_path)
    stage.run("r1")
    told = stage.cli("rate", "r1", "-5")
    assert told.code == 2
    assert "'-5' is not a number of rows per second above 0" in told.err

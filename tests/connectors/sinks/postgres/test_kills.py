"""Kill -9 of the driver at every step of a commit: the table has the batch whole, or not at all."""

import itertools
import json
import subprocess
import sys

import pytest

from tests.connectors.sinks.postgres.stage import Stage
from tests.connectors.sinks.postgres.victim import ROWS, STEPS, batch
from tests.postgres import postgres

pytestmark = pytest.mark.kill
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def victims():
    """Forks a driver for each line."""
    module = "tests.connectors.sinks.postgres.victim"
    command = [sys.executable, "-m", module, json.dumps(postgres())]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize(("when", "step"), list(itertools.product(("before", "after"), STEPS)))
def test_a_driver_that_is_killed_and_started_again(when, step, victims):
    stage = Stage(postgres(), f"killed{next(_NUMBERS)}")
    print(when, step, stage.schema, file=victims.stdin, flush=True)
    assert victims.stdout.readline() == "-9\n"
    landed = (when, step) == ("after", "commit")
    told = [(n, name) for n, _, name in ROWS]
    assert stage.rows() == told[: 8 if landed else 4], "a commit is whole, or has not been"
    assert (stage.sink().stamps()["r1"].stamp.batch == 1) == landed
    for number in (1, 2):  # the checkpoint has no end of batch 1: it runs again
        batch(stage, number)
    assert stage.rows() == told
    assert stage.staged() == 0

"""How commands end: the code of each end, and an error as an object for scripts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bad_input.terminal import Outcome
from tests.cli.stage import Stage
from tidemill.config.pins import About, Check
from tidemill.errors import ExitCode
from tidemill.planning.judging.expectations import Verdict
from tidemill.project import Project
from tidemill.runtime.registry import RunState, RunTotals
from tidemill.runtime.reports.results import Phase, RunResult


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage.make(tmp_path)


def error_of(found: Outcome) -> dict[str, Any]:
    """The error on stdout; its parts must also be in the text for people."""
    told = json.loads(found.out)
    assert list(told) == ["error"]
    error = told["error"]
    assert list(error) == ["message", "where", "fix", "exit_code"]
    assert error["message"] in found.err
    assert error["exit_code"] == found.code
    return dict(error)


def test_an_unknown_run_is_wrong_use_and_an_object_for_scripts(stage):
    plain, found = (stage.cli("status", "nightly", *more) for more in ((), ("--json",)))
    assert error_of(found) == {
        "message": "there is no run 'nightly'",
        "where": None,
        "fix": "'tidemill backfill' starts one",
        "exit_code": 2,
    }
    plain.refuses("there is no run 'nightly'\n  fix: 'tidemill backfill' starts one")
    assert plain.err == found.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("plan", "pipline"), "Missing option '--from'"),
        (("resume",), "Missing argument 'RUN'"),
        (("runs", "--jsn"), "No such option"),
        (("runs", "--config", "none.yaml"), "none.yaml"),
        (("late", "pipline"), "there is no pipeline or run 'pipline'"),
        (("plan", "pipline", "--from", "2026-01-01T00:00Z"), "there is no pipeline 'pipline'"),
        (("backfill", "pipeline", "--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z",
          "--name", "a b"), "'a b' cannot be a run's name"),
    ],
)  # fmt: skip
def test_wrong_use(stage, command, words):
    error = error_of(stage.cli(*command, "--json"))
    assert error["exit_code"] == 2
    assert words in error["message"] and error["fix"]


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (OSError(28, "No space left on device", "/data/x"), 1, "/data/x: No space left on device"),
        (KeyError("odd"), 1, "KeyError: 'odd'"),
        (KeyboardInterrupt(), 130, "the command was broken off"),
    ],
)
def test_what_fails_while_it_is_done(stage, monkeypatch, raised, code, told):
    def fail(project: Project, *_: object) -> None:
        raise raised

    monkeypatch.setattr(Project, "runs", fail)
    error = error_of(stage.cli("runs", "--json"))
    place = f"{error['where']}: " if error["where"] else ""
    assert (error["exit_code"], place + error["message"]) == (code, told)
    assert stage.cli("runs").out == ""


BROKEN = Verdict(Check(About.ROWS, "> 0", "output"), False, "0")


@pytest.mark.parametrize(
    ("state", "is_live", "verdicts", "code"),
    [
        (RunState.FINISHED, False, (), ExitCode.DONE),
        (RunState.FINISHED, False, (BROKEN,), ExitCode.BROKEN),
        (RunState.CANCELLED, False, (BROKEN,), ExitCode.CANCELLED),
        (RunState.CANCELLED, True, (), ExitCode.CANCELLED),
        (RunState.FAILED, True, (), ExitCode.ERROR),
        (RunState.STOPPED, False, (BROKEN,), ExitCode.STOPPED),
        (RunState.STOPPED, True, (), ExitCode.DONE),
        (RunState.STOPPED, True, (BROKEN,), ExitCode.BROKEN),
    ],
)
def test_the_end_of_a_run_is_the_end_of_its_command(state, is_live, verdicts, code):
    phase = Phase("live", {}) if is_live else None
    result = RunResult(
        "r", "p", state, {}, "", "", RunTotals(), 1, 1, 0.0, phase=phase, expectations=verdicts
    )
    assert result.exit_code is code


def test_a_command_ends_with_the_code_of_its_run(stage, monkeypatch):
    stage.run("r1", None)
    stage.project.registry.set_state("r1", RunState.CANCELLED)
    monkeypatch.setattr(Project, "resume", lambda project, run, **_: project.status(run))
    found = stage.cli("resume", "r1", "--json")
    assert (found.code, json.loads(found.out)["state"]) == (3, "cancelled")
    assert stage.cli("status", "r1").code == 0


def test_a_done_command_whose_stderr_nobody_reads_ends_with_0(stage):
    """A silenced stream makes the process leave at once, with the code of the command."""
    code = (
        "import sys\nfrom tidemill.cli import outlet\nfrom tidemill.cli.main import cli\n"
        "outlet.silence(2)\ncli(['runs', '--config', sys.argv[1]])"
    )
    path = str(stage.project.loaded.path)
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 0

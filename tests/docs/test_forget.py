"""The recipe of docs/recipes.md for cleaning up runs, over runs without Spark."""

import shlex
from pathlib import Path

import pytest

import tidemill
from tests.cli.stage import Stage, late_row
from tests.docs.test_recipes import blocks
from tidemill.runtime.registry import RunState


def test_cleaning_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.make(tmp_path)
    stage.run("20260101_120000_ab12", [late_row(30)])
    stage.project.registry.set_state("20260101_120000_ab12", RunState.FINISHED)
    monkeypatch.chdir(stage.project.loaded.path.parent)
    (code,) = blocks("Cleaning up", "python")
    exec(code, {"tidemill": tidemill})
    for command in blocks("Cleaning up", "bash")[0].splitlines():
        assert stage.project.runs() != []
        assert stage.cli(*shlex.split(command)[1:]).code == 0
    assert stage.project.runs() == []

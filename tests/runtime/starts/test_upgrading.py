"""Requests for an upgrade: the options that the old run was begun with."""

import pytest

from tests.cli.stage import Stage
from tests.manifests import make_manifest
from tidemill.errors import RequestError
from tidemill.planning.requests import run_request
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.naming import asked_of
from tidemill.runtime.starts.upgrading import Upgrade, asked_options


def test_the_new_run_has_the_options_of_the_old_one():
    given = {
        "regions": ("eu", "us"),
        "where": ("n > 1",),
        "rate": 100,
        "into": "marts.t",
        "trigger": "2 s",
        "slice": "30min",
        "params": {"campaign": "spring", "n": "3"},
    }
    first = run_request("p", "2026-01-01T00:00Z", emit_from="now", **given)
    again = run_request("p", None, **asked_options(asked_of(first)))
    ours = {"slice", "regions", "where", "rate", "into", "trigger", "params"}
    for name in ours:
        assert getattr(again, name) == getattr(first, name), name
    assert again.emit_from is None


def test_only_a_live_run_that_goes_on_is_upgraded(tmp_path):
    stage = Stage.make(tmp_path)
    stage.run("backfill")
    loaded, registry = stage.project.loaded, stage.project.registry
    with pytest.raises(RequestError, match="backfill is a backfill: only live runs"):
        Upgrade.of(loaded, "backfill", False, None)
    made = make_manifest(run="live", mode="live", ends=False)
    RunFolder.of(loaded.home, "live").write_manifest(made)
    registry.add("live", "p", "live")
    registry.set_state("live", RunState.CANCELLED)
    with pytest.raises(RequestError, match="the run live is cancelled: it does not go on"):
        Upgrade.of(loaded, "live", False, None)
    told = stage.cli("upgrade", "backfill", "--dry-run", "--json")
    assert told.code == 2
    assert "only live runs" in told.out

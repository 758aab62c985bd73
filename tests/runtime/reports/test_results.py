"""How far a run without an end is: in history by its frontiers, live by what its sources told."""

import json
import time
from dataclasses import replace

import pytest

from tests.manifests import change, make_manifest, make_pin
from tidemill.cli.render import _lag_text
from tidemill.planning.manifest import HistoryPhase, LivePin
from tidemill.planning.offsets import Offset
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, write_lag, write_times, write_waiting
from tidemill.runfolder.phases import HistoryPhases, write_phases
from tidemill.runtime.registry import RunTotals
from tidemill.runtime.reports.results import Phase, read_phase
from tidemill.types import SECOND

LIVE = LivePin("kafka", "t", 0, 1, 0)
PIN = make_pin("plays", live=LIVE)


@pytest.fixture
def now():
    return time.time_ns() // 1_000


@pytest.fixture
def manifest(now):
    """History from an hour ago; ads have a seam ten minutes before that of plays."""
    begin = now - 3_600 * SECOND
    seams = {"plays": now - 600 * SECOND, "ads": now - 1_200 * SECOND}
    return make_manifest(
        run="r", pipeline="p", mode="hybrid", created=now,
        output=(0, now), boundaries=(begin, now - 1_800 * SECOND, now - 600 * SECOND),
        sources={name: replace(PIN, phase=HistoryPhase(seam)) for name, seam in seams.items()},
        ends=False,
    )  # fmt: skip


def phase_of(folder, manifest, frontier=None) -> Phase:
    found = read_phase(RunFolder(folder), manifest, RunTotals(frontier=frontier))
    assert found is not None
    return found


def enter(folder, batch: int, **frontiers: int) -> None:
    """An entry of Spark's offset log."""
    path = folder / "checkpoint" / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    ends = [json.dumps(Offset(name, at).to_json()) for name, at in frontiers.items()]
    path.write_text("\n".join(["v1", '{"batchWatermarkMs": 0}', *ends]), "utf-8")


def test_history_says_how_far_it_is_from_now_and_from_the_seam(tmp_path, manifest, now):
    begun = phase_of(tmp_path, manifest)
    assert begun.name == "history" and set(begun.lags) == {"plays", "ads"}
    assert 3_600 * SECOND <= begun.lags["plays"].behind < 3_700 * SECOND
    assert begun.history("plays") == 3_000 * SECOND
    enter(tmp_path, 0, plays=now - 1_800 * SECOND, ads=now - 1_900 * SECOND)
    shown = phase_of(tmp_path, manifest, now - 1_900 * SECOND).to_json()["lag"]
    assert (shown["plays"]["seconds_to_seam"], shown["ads"]["seconds_to_seam"]) == (1_200, 700)
    assert 1_800 <= shown["plays"]["seconds"] < 1_900 <= shown["ads"]["seconds"] < 2_000
    assert shown["plays"]["rows"] == shown["plays"]["partition_seconds"] == {}


def test_an_offset_log_that_cannot_be_read_leaves_what_is_committed(tmp_path, manifest, now):
    enter(tmp_path, 0)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("harmed", "utf-8")
    found = phase_of(tmp_path, manifest, now - 1_800 * SECOND)
    assert {lag.frontier for lag in found.lags.values()} == {now - 1_800 * SECOND}


def test_a_source_that_waits_at_its_seam_says_so_until_history_goes_on(tmp_path, manifest, now):
    seams = HistoryPhases(manifest).seams()
    enter(tmp_path, 0, **seams)
    write_waiting(tmp_path, "plays", seams["plays"], "no broker")
    waits = phase_of(tmp_path, manifest, seams["ads"])
    assert (waits.name, waits.lags["plays"].waiting) == ("history", "no broker")
    assert waits.history("plays") is None and waits.lags["ads"].waiting is None
    write_lag(tmp_path, "plays", Lag(now, seams["plays"] - 1, waiting="of an earlier phase"))
    assert phase_of(tmp_path, manifest, seams["ads"]).lags["plays"].waiting is None


def test_live_says_rows_and_seconds_of_every_partition(tmp_path, manifest, now):
    write_phases(tmp_path, HistoryPhases(manifest, switched=True))
    lag = Lag(now, now - 9 * SECOND, {"0": 1_200, "1": 3, "2": 0})
    write_lag(tmp_path, "plays", lag)
    write_times(tmp_path, "plays", lag.frontier, {"1": now - 2 * SECOND})
    found = phase_of(tmp_path, manifest, now - 9 * SECOND)
    assert (found.name, set(found.lags)) == ("live", {"plays"})
    shown = found.to_json()["lag"]["plays"]
    assert shown["seconds"] == 9 and shown["seconds_to_seam"] is None
    assert shown["rows"] == {"0": 1_200, "1": 3, "2": 0}
    assert shown["partition_seconds"] == {"0": 9, "1": 2, "2": 0}


@pytest.mark.parametrize(
    ("lag", "history", "text"),
    [
        (Lag(9 * SECOND, 0), 3 * SECOND, "9.0 s behind, 3.0 s of history before its seam"),
        (Lag(9 * SECOND, 0), None, "9.0 s behind"),
        (Lag(9 * SECOND, 0, {"0": 0}), None, "0 rows behind, 9.0 s"),
        (
            Lag(9 * SECOND, 0, {"0": 1_200, "1": 3, "2": 0}, times={"1": 7 * SECOND}),
            None,
            "1,203 rows behind, 9.0 s  [dim]by partition 0: 1,200 rows 9.0 s, 1: 3 rows 2.0 s[/]",
        ),
    ],
)
def test_the_lag_as_text(lag, history, text):
    assert _lag_text(lag, history) == text


def test_a_run_that_goes_on_for_one_that_was_not_exact_is_not_exact(tmp_path, manifest):
    assert phase_of(tmp_path, manifest).is_exact
    found = phase_of(tmp_path, change(manifest, inherited=3))
    assert (found.is_exact, found.clock) == (False, 3)

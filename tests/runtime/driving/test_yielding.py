"""A backfill looks at a live run's lag and writes its own rate. Both are put together by hand."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bad_input.shop import FROM, TO, Shop, events, table
from tests.cli.stage import Stage
from tests.manifests import change
from tidemill.errors import PlanError
from tidemill.planning.manifest import HistoryPhase, LivePin
from tidemill.planning.requests import request
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import Lag, write_lag, write_waiting
from tidemill.runfolder.lease import hold_lease
from tidemill.runtime.driving import yielding
from tidemill.runtime.driving.yielding import YieldWatch
from tidemill.runtime.registry import BatchRecord, RunState
from tidemill.types import SECOND

LIVE, BACK = "20260101_000000_aaaa", "20260101_000001_bbbb"


class Scene:
    """The clock is the test's; the live run is driven by this process."""

    def __init__(self, stage: Stage, clock: SimpleNamespace) -> None:
        self.stage, self.clock, self.registry = stage, clock, stage.project.registry
        self.live, back = stage.run(LIVE, [], on_time=10), stage.run(BACK, [])
        made = self.live.read_manifest()
        pin = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=SECOND)
        plays = replace(made.sources["plays"], live=pin, phase=HistoryPhase(0))
        made = change(made, ends=False, boundaries=(0,), sources={"plays": plays})
        (self.live.path / "manifest.json").write_text(made.to_json())
        self.back, home = back, stage.project.loaded.home
        manifest = change(back.read_manifest(), yields_to=LIVE)
        self.watch = YieldWatch(home, back, self.registry, manifest)
        self.registry.record_batch(BACK, BatchRecord(1, 1, 0, 2_000, 0, 0, 0, 0, 0.0))

    def pass_by(self, seconds: int, *lags: float) -> int | None:
        """So many seconds with a lag from the first to the last value; the rate after them."""
        for second in range(seconds):
            self.clock.now += 1
            lag = lags[0] + (lags[-1] - lags[0]) * second / seconds
            at = int(self.clock.now * SECOND)
            write_lag(self.live.path, "plays", Lag(at, at - int(lag * SECOND), {"0": 1}))
            self.watch.look()
        return read_control(self.back.path).yielding


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    clock = SimpleNamespace(now=1_000_000.0)
    fake = SimpleNamespace(
        monotonic=lambda: clock.now, time_ns=lambda: int(clock.now * SECOND) * 1_000
    )
    monkeypatch.setattr(yielding, "time", fake)
    made = Scene(Stage.make(tmp_path), clock)
    made.registry.set_state(LIVE, RunState.RUNNING)
    with hold_lease(made.live.path, LIVE):
        yield made


def test_it_slows_down_while_the_lag_grows_and_comes_back(scene: Scene) -> None:
    assert scene.pass_by(20, 1.0) is None
    first = scene.pass_by(24, 1.0, 40.0)
    assert first is not None and 10 < first < 100, "half of 2,000 rows in about 40 s, or less"
    lower = scene.pass_by(24, 40.0, 80.0)
    assert lower is not None and lower < first
    assert scene.pass_by(36, 80.0, 1.0) is not None, "it catches up"
    assert scene.pass_by(300, 1.0) is None
    told = (scene.back.path / "driver.log").read_text().splitlines()
    assert "yields: reads at most " in told[0]
    assert f" rows/s, because the run {LIVE} is " in told[0]
    assert "yields: reads as fast as it can" in told[-1]


@pytest.mark.parametrize("how", ["stopped", "waits for its log", "forgotten"])
def test_whom_slowing_down_does_not_help_is_not_given_way_to(scene: Scene, how: str) -> None:
    assert scene.pass_by(40, 1.0, 80.0) is not None
    if how == "stopped":
        scene.registry.set_state(LIVE, RunState.STOPPED)
    elif how == "forgotten":
        scene.registry.remove(LIVE)
    else:
        write_waiting(scene.live.path, "plays", 5, "nobody home")
    scene.clock.now += 2
    scene.watch.look()
    assert read_control(scene.back.path).yielding is None


def test_only_a_live_run_is_given_way_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    shop = Shop.make(tmp_path)
    shop.fill("logs.plays", table(events()), files=2)
    shop.know()
    live = shop.project.prepare_run("sums", name="live")
    asked = request("sums", FROM, TO, yield_to="live")
    made = shop.project._starter().begin(asked, None, None)
    assert made.times.yields_to == "live" and made.identity.asked["yield-to"] == "live"
    folder = RunFolder.of(shop.project.loaded.home, made.run)
    assert folder.read_manifest().times.yields_to == "live"
    shop.cli("backfill", "sums", "--from", FROM, "--to", TO, "--yield-to", made.run).refuses(
        f"--yield-to: the run {made.run} is a backfill, which has no lag to give way to\n"
        "  fix: name a live run or an archive run, best by its --name"
    )
    with pytest.raises(PlanError, match="there is no option 'yield_to'"):
        shop.project.prepare_run("sums", yield_to=live.run)

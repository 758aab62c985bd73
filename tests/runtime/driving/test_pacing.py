"""The throttle over a run that only moves offsets: what is released, and when."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.manifests import change, make_manifest, make_pin
from tidemill.planning.manifest import HistoryPhase, LivePin, Manifest
from tidemill.planning.offsets import Offset
from tidemill.reading.route import Route
from tidemill.runfolder.control import read_control, read_released, update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.phases import Extension, HistoryPhases, read_phases, write_phases
from tidemill.runtime.driving import pacing
from tidemill.runtime.driving.pacing import Throttle
from tidemill.types import FOREVER_MICROS

SEAMS = {"ads": 30, "plays": 50}
LIVE = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=0)
PLAN = make_manifest(
    run="r", pipeline="p", mode="live", created=0, output=(0, 1),
    boundaries=(10, 20, 40, 50),
    ends=False, rate=5,
    sources={
        source: make_pin(source, live=LIVE, phase=HistoryPhase(seam))
        for source, seam in SEAMS.items()
    },
)  # fmt: skip
ENDING = change(
    PLAN,
    ends=True,
    sources={source: replace(pin, live=None, phase=None) for source, pin in PLAN.sources.items()},
)


class Run:
    """Takes what is released as sources do; every batch has so many rows."""

    def __init__(self, folder: Path, manifest: Manifest, clock: SimpleNamespace) -> None:
        self.folder, self.manifest, self.clock = RunFolder(folder), manifest, clock
        (self.folder.checkpoint / "offsets").mkdir(parents=True)
        (folder / "manifest.json").write_text(manifest.to_json())
        self.at = dict.fromkeys(sorted(manifest.sources), manifest.times.boundaries[0])
        self.batch = 0
        self.restart()

    @property
    def history(self) -> HistoryPhases:
        return read_phases(self.folder.path, self.manifest)

    def restart(self) -> None:
        self.throttle = Throttle(self.folder, self.manifest)

    def take(self, rows: int = 10) -> list[int]:
        """One batch, if anything is released; where the sources are then."""
        self.throttle.look()
        found = {source: self._next(source, at) for source, at in self.at.items()}
        if found != self.at:
            self.at = found
            lines = [json.dumps({"source": name, "frontier": at}) for name, at in found.items()]
            entry = self.folder.checkpoint / "offsets" / str(self.batch)
            entry.write_text("\n".join(["v1", "{}", *lines]))
            self.throttle.count(self.batch, rows)
            self.batch += 1
        return list(self.at.values())

    def _next(self, source: str, at: int) -> int:
        route = Route(self.folder.path, source)
        released = read_released(self.folder.path, source)
        return route.next(Offset(source, at), released, lambda *_: None).frontier

    def wait(self, seconds: float) -> list[int]:
        self.clock.now += seconds
        return self.take()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(now=100.0)
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def test_history_waits_for_the_rate_and_live_does_not(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    run = Run(tmp_path, PLAN, clock)
    assert run.take() == [20, 20]
    assert run.wait(1.9) == [20, 20], "ten rows take two seconds"
    assert run.wait(0.2) == [30, 20], "one source is at its seam, the other's slice ends later"
    assert [run.wait(2.0), run.wait(2.0)] == [[30, 40], [30, 50]]
    assert run.wait(60.0) == [30, 50]
    assert read_control(tmp_path).released is not None, "more of history may be laid on"
    write_phases(tmp_path, replace(run.history, switched=True))
    run.take()
    assert read_control(tmp_path).released is None


def test_what_is_laid_on_waits_too(tmp_path: Path, clock: SimpleNamespace) -> None:
    run = Run(tmp_path, PLAN, clock)
    assert [run.wait(2.0) for _ in range(4)][-1] == [30, 50]
    phases = {source: HistoryPhase(80) for source in SEAMS}
    write_phases(tmp_path, replace(run.history, extensions=(Extension((30, 60, 80), phases),)))
    assert run.take(rows=100) == [60, 60]
    assert [run.wait(15.0), run.wait(6.0)] == [[60, 60], [80, 80]]


@pytest.mark.parametrize("manifest", [PLAN, ENDING], ids=["into live", "with an end"])
def test_another_driver_goes_on(manifest: Manifest, tmp_path: Path, clock: SimpleNamespace) -> None:
    run = Run(tmp_path, manifest, clock)
    run.take(rows=1_000)
    assert run.wait(1.0) == [20, 20]
    run.restart()
    assert run.take(rows=10) != [20, 20]
    for _ in range(3):
        run.wait(2.0)
    assert list(run.at.values()) == ([FOREVER_MICROS] * 2 if manifest.times.ends else [30, 50])


def test_between_the_steps_of_a_lost_run_the_rate_holds(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    """A source that is held at a step does not hold the others, and nobody passes it."""
    steps = ({"ads": 20, "plays": 40}, {"ads": 30, "plays": 40}, {"ads": 30, "plays": 50})
    run = Run(tmp_path, change(PLAN, steps=steps), clock)
    assert run.take() == [20, 20]
    assert run.take() == [20, 20], "ten rows have not had their two seconds"
    assert run.wait(2.0) == [20, 40]
    assert run.wait(60.0) == [20, 40], "Spark may still have a batch to make"
    update_control(tmp_path, steps_done=1)
    assert [run.take(), run.wait(60.0)] == [[30, 40], [30, 40]]
    update_control(tmp_path, steps_done=2)
    assert run.wait(2.0) == [30, 50]
    write_phases(tmp_path, replace(run.history, switched=True))
    run.take()
    assert read_control(tmp_path).released is not None
    update_control(tmp_path, steps_done=3)
    run.take()
    assert read_control(tmp_path).released is None


def test_without_a_rate_all_is_released(tmp_path: Path, clock: SimpleNamespace) -> None:
    run = Run(tmp_path, change(PLAN, rate=None), clock)
    assert [run.take() for _ in range(3)] == [[20, 20], [30, 40], [30, 50]]
    assert not (tmp_path / "control.json").exists()

"""The throttle over a run that only moves offsets: what is released, and when."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.manifests import change, make_manifest, make_pin
from tidemill.planning.manifest import HistoryPhase, LivePin, Manifest
from tidemill.planning.offsets import Offset
from tidemill.reading.route import Route
from tidemill.runfolder.control import Control, read_control, read_released, update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.phases import Extension, HistoryPhases, read_phases, write_phases
from tidemill.runtime.driving import pacing
from tidemill.runtime.driving.pacing import Account, Throttle
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


def test_a_rate_that_is_ordered_holds_from_the_next_slice_on(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    run = Run(tmp_path, change(ENDING, rate=None), clock)
    assert run.take() == [20, 20]
    update_control(tmp_path, rate=5)
    assert run.take() == [40, 40], "ten rows were read when nothing was asked of them"
    assert [run.wait(1.9), run.wait(0.2)] == [[40, 40], [FOREVER_MICROS] * 2]


def test_an_order_holds_instead_of_the_rate_of_the_start_also_for_another_driver(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    run = Run(tmp_path, ENDING, clock)
    run.take(rows=1_000)
    update_control(tmp_path, rate=0)
    assert run.take(rows=1_000) == [40, 40]
    assert read_control(tmp_path).released is None
    run.restart()
    assert run.take() == [FOREVER_MICROS] * 2


def test_rows_that_had_no_time_yet_get_it_at_the_new_rate(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    run = Run(tmp_path, ENDING, clock)
    run.take(rows=1_000)  # they need 200 s at 5 rows a second
    assert run.wait(100.0) == [20, 20]
    update_control(tmp_path, rate=50)
    assert run.take() == [20, 20]
    assert [run.wait(9.9), run.wait(0.2)] == [[20, 20], [40, 40]], "500 rows are left to wait for"


def test_giving_way_can_only_lower_the_rate(tmp_path: Path, clock: SimpleNamespace) -> None:
    run = Run(tmp_path, ENDING, clock)
    update_control(tmp_path, rate=0, yielding=10)
    run.take(rows=20)
    assert [run.wait(1.9), run.wait(0.2)] == [[20, 20], [40, 40]]
    assert Control(rate=3, yielding=10).limit(5) == 3
    assert Control(rate=30, yielding=10).limit(5) == 10
    assert Control(rate=0).limit(5) is None
    assert Control().limit(5) == 5


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(1, 1_000)), st.integers(0, 500), st.floats(0, 20)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_no_rate_is_exceeded_however_often_it_changes(
    turns: list[tuple[int | None, int, float]],
) -> None:
    """While rows were released under one rate, they had their time, but for the last slice."""
    now, account, rate = 0.0, Account(0.0), None
    since, released = 0.0, 0
    for wanted, rows, pause in turns:
        if wanted != rate:
            account.settle(now, wanted)
            rate, since, released = wanted, now, 0
        if account.is_due(now):
            assert rate is None or released <= (now - since) * rate + 1e-6
            account.rows += rows
            released += rows
        now += pause


def test_a_pause_saves_nothing_up(tmp_path: Path, clock: SimpleNamespace) -> None:
    run = Run(tmp_path, ENDING, clock)
    run.take(rows=10)
    update_control(tmp_path, paused=True)
    run.take()
    assert run.wait(3_600.0) == [20, 20]
    update_control(tmp_path, paused=False)
    assert run.take(rows=10) == [40, 40]
    assert [run.wait(1.0), run.wait(1.1)] == [[40, 40], [FOREVER_MICROS] * 2]


def test_a_live_source_asks_for_the_rate_at_every_slice(tmp_path: Path) -> None:
    live = change(PLAN, boundaries=(10,), sources={"plays": make_pin("plays", live=LIVE)})
    (tmp_path / "manifest.json").write_text(live.to_json())
    asked: list[int | None] = []

    def decide(start: Offset, widest: int, rate: int | None) -> None:
        asked.append(rate)

    route = Route(tmp_path, "plays")
    for order in (None, 7, 0):
        update_control(tmp_path, rate=order)
        route.next(Offset("plays", 10), None, decide)
    assert asked == [5, 7, None]

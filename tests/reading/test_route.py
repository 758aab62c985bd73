"""Live slices are decided once: by whichever use, through crashes, and again after a rewind."""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import change, make_manifest, make_pin
from tidemill.errors import RunError
from tidemill.planning.manifest import HistoryPhase, LivePin, Manifest, ParentRun, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.reading.route import Route
from tidemill.runfolder.control import update_control
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import read_batch
from tidemill.runfolder.phases import HistoryPhases, write_phases
from tidemill.runtime.driving.committer import (
    TakenSlice,
    forget_slices,
    slices_taken,
)
from tidemill.runtime.driving.rewind import prepare_start, rewind

USES = ("plays", "ads", "plays")
SEAMS = {"plays": 40_000, "ads": 30_000}
LIVE = LivePin("kafka", "topic", slack=0, max_rows=9, trigger=0)
KEEP = 3


class Crash(Exception):
    """The driver dies here."""


def manifest(history: bool, parent: ParentRun | None = None) -> Manifest:
    def pin(source: str) -> SourcePin:
        phase = HistoryPhase(SEAMS[source] if history else 10_000, positions={"0": 0})
        return make_pin(source, live=LIVE, phase=phase)

    return make_manifest(
        run="r", pipeline="p", mode="live", created=0, output=(0, 1),
        boundaries=(10_000, 20_000, 40_000) if history else (10_000,),
        sources={"plays": pin("plays"), "ads": pin("ads")},
        ends=False, misalignment=25_000, keep_batches=KEEP, parent=parent,
    )  # fmt: skip


class Run:
    """What Spark and the driver do with routes: batches, the offset log, crashes, rewinds."""

    def __init__(self, folder: Path, history: bool, parent: ParentRun | None = None) -> None:
        self.folder = RunFolder(folder)
        self.manifest = manifest(history, parent)
        (folder / "manifest.json").write_text(self.manifest.to_json())
        for log in ("offsets", "commits"):
            (folder / "checkpoint" / log).mkdir(parents=True)
        self.switched = not history
        self.moments = count(1)  # every decision is another one: the log grew meanwhile
        self.entries: dict[int, list[Offset]] = {}
        self.taken: dict[int, list[TakenSlice]] = {}
        self.watermarks: dict[int, int] = {}
        self.dies_in: str | None = None
        self.restart()

    def restart(self) -> None:
        """Other processes: they know what is on disk."""
        if (self.folder.path / "manifest.json").exists():
            prepare_start(self.folder, self.manifest)
        self.routes = [Route(self.folder.path, use) for use in USES]
        batches = [int(path.name) for path in self._log("offsets")]
        self.batch = max(batches, default=-1)
        self.allowed: dict[int, int] = {}  # what Spark forgets: the watermark that each use allows
        self.closed: int | None = None  # the watermark of the last batch that this Spark ran
        commits = [int(path.name) for path in self._log("commits")]
        self.watermark = 0
        if commits:
            text = (self.folder.checkpoint / "commits" / str(max(commits))).read_text()
            self.watermark = json.loads(text.splitlines()[1])["nextBatchWatermarkMs"]
        if self.batch >= 0 and self.batch not in commits:
            self._run(self.batch)

    def _log(self, name: str) -> Iterator[Path]:
        return (self.folder.checkpoint / name).glob("[0-9]*")

    def _decide(self, use: int) -> Callable[[Offset, int, int | None], Offset | None]:
        def decide(start: Offset, widest: int, rate: int | None) -> Offset | None:
            moment = next(self.moments)
            if self.dies_in == f"before {use}":
                raise Crash
            if moment % 4 == 0:
                return None  # nothing new is complete
            end = start.frontier + min(widest, 1_000 + moment % 5 * 3_000)
            if end == start.frontier:
                return None
            assert start.positions is not None
            found = Offset(USES[use], end, {"0": start.positions["0"] + moment})
            if self.dies_in == f"after {use}":
                self.routes[use].decided_slices.decide(start.frontier, found)
                raise Crash
            return found

        return decide

    def step(self, held: frozenset[int]) -> None:
        """One batch, if any use has something; held ones are given nothing more."""
        now = self._switch_or(self.entries.get(self.batch))
        ends = []
        for use, route in enumerate(self.routes):
            start = route.first() if now is None else now[use]
            released = 0 if use in held else None
            ends.append(route.next(start, released, self._decide(use)))
        is_idle = ends == (now or [route.first() for route in self.routes])
        if is_idle and (self.closed is None or self.watermark <= self.closed):
            assert self.batch + 1 not in self.entries, "it hangs: Spark makes no such batch"
            return
        batch = self.batch + 1
        repeated = self.entries.get(batch)
        assert repeated is None or repeated == ends, "a repeated batch has the same slices"
        assert self.watermarks.setdefault(batch, self.watermark) == self.watermark, (
            "a repeated batch closes the same windows"
        )
        for before, end in zip(now or [], ends, strict=False):
            assert end.frontier - before.frontier <= self.manifest.times.misalignment
        self.entries[batch] = ends
        told = json.dumps({"batchWatermarkMs": self.watermark})
        text = "\n".join(["v1", told, *(json.dumps(end.to_json()) for end in ends)])
        (self.folder.checkpoint / "offsets" / str(batch)).write_text(text)
        self.batch = batch
        if self.dies_in == "batch":
            raise Crash
        self._run(batch)

    def _run(self, batch: int) -> None:
        """Spark runs a batch of its offset log, and then knows the next watermark."""
        before = self.entries.get(batch - 1, [route.first() for route in self.routes])
        now = read_batch(self.folder.checkpoint, batch)
        assert now is not None
        for use, (old, new) in enumerate(zip(before, self.entries[batch], strict=True)):
            if new.frontier > old.frontier:
                self.allowed[use] = new.frontier // 1_000 - 1
        self.closed = self.watermark = now.watermark
        if len(self.allowed) == len(USES):
            self.watermark = max(self.watermark, min(self.allowed.values()))
        self._commit(batch)

    def _switch_or(self, now: list[Offset] | None) -> list[Offset] | None:
        at_seams = now is not None and all(end.frontier >= SEAMS[end.source] for end in now)
        if not self.switched and at_seams:
            write_phases(self.folder.path, HistoryPhases(self.manifest, switched=True))
            self.switched = True
        return now

    def _commit(self, batch: int) -> None:
        """As the committer does: take the slices that are new, let go of old decisions."""
        now, before = read_batch(self.folder.checkpoint, batch), None
        if batch:
            before = read_batch(self.folder.checkpoint, batch - 1)
        assert now is not None
        routes = dict(zip(USES, self.routes, strict=True))
        taken = slices_taken(routes, before, now)
        assert self.taken.setdefault(batch, taken) == taken, "a repeated batch takes the same"
        forget_slices(routes, self.folder.checkpoint, batch)
        if self.dies_in == "commit":
            raise Crash
        told = json.dumps({"nextBatchWatermarkMs": self.watermark})
        (self.folder.checkpoint / "commits" / str(batch)).write_text(f"v1\n{told}")
        for log in ("offsets", "commits"):
            for path in self._log(log):
                if int(path.name) < batch - KEEP:
                    path.unlink()

    def go_back(self, batch: int) -> None:
        """A rewind to any batch that Spark still knows; refused where uses stood apart."""
        try:
            rewind(self.folder, self.manifest, batch)
        except RunError as error:
            reasons = ("different places", "has not all", "the same watermarks")
            assert any(reason in error.message for reason in reasons)
        self.restart()

    def _path(self, use: int) -> list[Offset]:
        """The offsets of a use, each once."""
        found = [self.routes[use].first()]
        for batch in range(self.batch + 1):
            end = self.entries[batch][use]
            found += [end] if end != found[-1] else []
        return found

    def check(self) -> None:
        """Every use went through one chain of slices, and each slice was taken once."""
        for source in dict.fromkeys(USES):
            mine = [use for use, name in enumerate(USES) if name == source]
            paths = [self._path(use) for use in mine]
            longest = max(paths, key=len)
            for path in paths:
                assert path == longest[: len(path)]
            taken = [
                (piece.start, piece.end)
                for batch in range(self.batch + 1)
                for piece in self.taken[batch]
                if piece.source == source
            ]
            assert taken == list(pairwise(longest))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.frozensets(st.integers(0, 2), max_size=2)),
        st.tuples(st.just("step"), st.just(frozenset())),
        st.tuples(
            st.just("crash"),
            st.sampled_from(["before 0", "before 2", "after 0", "after 1", "batch", "commit"]),
        ),
        st.tuples(st.just("rewind"), st.integers(0, KEEP)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("history", [False, True], ids=["live", "hybrid"])
@settings(max_examples=120)
@given(steps=STEPS)
def test_however_a_run_goes_its_slices_stay_the_same(history, steps):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), history)
        for kind, what in [*steps, *[("step", frozenset())] * 8]:
            if kind == "step":
                run.step(what)
            elif kind == "crash":
                run.dies_in = what
                for _ in range(3):
                    try:
                        run.step(frozenset())
                    except Crash:
                        break
                run.dies_in = None
                run.restart()
            elif run.batch >= 0:
                run.go_back(max(0, run.batch - what))
            run.check()
        assert run.batch > 0


def test_no_source_passes_a_step_before_it_is_settled(tmp_path):
    steps = [(20_000, 20_000), (20_000, 22_000), (40_000, 30_000)]
    ways = {"plays": (10_000, 12_000, 14_000, 20_000, 25_000), "ads": (10_000, 20_000, 22_000)}
    run = Run(tmp_path, history=True)
    sources = {
        name: replace(pin, phase=replace(pin.phase, boundaries=ways[name]))
        for name, pin in run.manifest.sources.items()
    }
    taken = tuple({"plays": plays, "ads": ads} for plays, ads in steps)
    run.manifest = change(run.manifest, sources=sources, steps=taken)
    (tmp_path / "manifest.json").write_text(run.manifest.to_json())
    run.restart()
    for settled, step in enumerate(steps):
        update_control(tmp_path, steps_done=settled)
        for _ in range(5):
            run.step(frozenset())
        ends = run.entries[run.batch]
        assert (ends[0].frontier, ends[1].frontier) == step
        assert ends[0] == ends[2]
    update_control(tmp_path, steps_done=len(steps))
    run.step(frozenset())
    assert run.entries[run.batch][0].frontier > steps[-1][0]  # live, free of steps


def decided(decided_slices: DecidedSlices, *frontiers: int) -> list[Offset]:
    ends = [Offset("plays", end, {"0": n + 5}) for n, end in enumerate(frontiers[1:])]
    for start, end in zip(frontiers, ends, strict=False):
        assert decided_slices.decide(start, end) == end
    return ends


def test_in_history_a_source_goes_to_its_own_seam_and_then_waits_for_the_others(tmp_path):
    run = Run(tmp_path, history=True)
    phases = {
        "plays": HistoryPhase(90_000, positions={"0": 0}),
        "ads": HistoryPhase(30_000, positions={"0": 0}),
    }
    sources = {name: replace(pin, phase=phases[name]) for name, pin in run.manifest.sources.items()}
    made = change(run.manifest, boundaries=(10_000, 30_000, 50_000, 90_000), sources=sources)
    (tmp_path / "manifest.json").write_text(made.to_json())
    ends = {}
    for name in ("plays", "ads"):
        route = Route(tmp_path, name)
        at, ends[name] = route.first(), [10_000]
        for _ in range(5):  # the run is in history: nobody is asked of the log
            at = route.next(at, None, lambda *_: pytest.fail("decided"))
            ends[name].append(at.frontier)
    assert ends["ads"] == [10_000, *[30_000] * 5]
    assert ends["plays"] == [10_000, 30_000, 50_000, *[90_000] * 3]
    assert made.times.misalignment < 90_000 - 30_000
    text = ["v1", '{"batchWatermarkMs": 0}']
    text += [json.dumps(Offset(name, ends[name][-1]).to_json()) for name in ends]
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("\n".join(text))
    history = HistoryPhases(made, switched=True)
    assert history.room(tmp_path, "plays", 90_000) == 0
    assert history.room(tmp_path, "ads", 30_000) == made.times.misalignment


def test_the_first_decision_holds(tmp_path):
    decided_slices, other = DecidedSlices(tmp_path, "plays"), DecidedSlices(tmp_path, "plays")
    assert decided_slices.after(10) is None
    (end,) = decided(decided_slices, 10, 30)
    assert other.decide(10, Offset("plays", 40, {"0": 9})) == end
    assert decided_slices.after(10) == other.after(10) == end
    assert decided_slices.folder.names() == ["10.json"]


@given(data=st.data())
def test_between_any_two_frontiers_is_the_chain(tmp_path, data):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        decided_slices = DecidedSlices(Path(folder), "plays")
        steps = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=9))
        frontiers = [sum(steps[:n]) for n in range(len(steps) + 1)]
        ends = decided(decided_slices, *frontiers)
        low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(steps))] * 2)))
        assert decided_slices.between(frontiers[low], frontiers[high]) == ends[low:high]
        decided_slices.forget(frontiers[low])
        assert decided_slices.between(frontiers[low], frontiers[-1]) == ends[low:]
        assert len(decided_slices.folder.names()) == len(steps) - low


def test_a_decision_that_is_gone_or_damaged_is_an_error(tmp_path):
    decided_slices = DecidedSlices(tmp_path, "plays")
    decided(decided_slices, 10, 20, 30)
    with pytest.raises(RunError, match="the slice after 30 is not among the decided slices"):
        decided_slices.between(10, 40)
    (decided_slices.folder / "20.json").write("{")
    with pytest.raises(RunError, match="a decided slice cannot be read") as raised:
        decided_slices.between(10, 30)
    assert raised.value.where.endswith("20.json")

"""Callbacks around a commit: what they are told, how one fails, is left, or is called again."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidemill import BatchCommit
from tidemill.errors import RunError
from tidemill.pipeline import NamedFunction
from tidemill.planning.offsets import Offset
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.retrying import BrokenOffError
from tidemill.runtime.driving.callbacks import Callbacks
from tidemill.runtime.driving.committer import TakenSlice, ranges_of
from tidemill.runtime.driving.driver import Driver
from tidemill.types import FOREVER_MICROS

ROOT = Path(__file__).parents[3]
HOUR = 3_600_000_000
TOLD = BatchCommit(
    "20260101_000000_ab12", "plays", 7,
    {"clicks": (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))},
    on_time=5, late=1, dead=0, written={"output": 3},
)  # fmt: skip


def callbacks(folder, **functions):
    named = {key: NamedFunction(f"house:{f.__name__}", f) for key, f in functions.items()}
    return Callbacks(named, RunFolder(folder))


def test_it_is_called_with_the_batch_and_again_with_repeat(tmp_path):
    seen = []
    found = callbacks(tmp_path, before_commit=seen.append)
    for batch in (7, 7):
        found.call("before_commit", TOLD)
        assert TOLD.batch == batch
    found.call("after_commit", TOLD)  # there is none
    assert [each.repeat for each in seen] == [False, True]
    assert asdict(seen[0]) == asdict(TOLD)
    assert pickle.loads(pickle.dumps(seen[1])) == seen[1]
    with pytest.raises(FrozenInstanceError):
        seen[0].batch = 8


def test_the_note_is_there_before_the_call(tmp_path):
    notes = []
    folder = tmp_path / "called.json"
    found = callbacks(tmp_path, after_commit=lambda told: notes.append(folder.read_text()))
    found.call("after_commit", TOLD)
    assert notes == ['{"after_commit": 7}']


def gate(told):
    check(told.written["output"])


def check(rows):
    raise ValueError(f"only {rows} rows")


def leave(told):
    sys.exit("enough")


def line_of(text):
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(at for at, line in enumerate(lines, 1) if text in line)


def test_one_that_fails_stops_the_run_and_says_where_and_what_comes_next(tmp_path):
    found = callbacks(tmp_path, before_commit=gate, after_commit=gate)
    with pytest.raises(RunError) as raised:
        found.call("before_commit", TOLD)
    line = line_of('raise ValueError(f"only')
    assert raised.value.text() == (
        f"pipeline plays (test_callbacks.py:{line}): before_commit house:gate failed for batch 7: "
        "ValueError: only 3 rows; nothing of the batch was committed\n"
        f"  fix: correct it or what it asks for, then 'tidemill resume {TOLD.run}' runs the batch "
        "again, with the same rows, and calls it again with repeat=True"
    )
    facts = raised.value.facts
    assert (facts["function"], facts["file"], facts["line"]) == ("house:gate", __file__, line)
    with pytest.raises(RunError, match="nothing more of the batch was committed than before"):
        found.call("before_commit", TOLD)
    with pytest.raises(RunError, match="the batch is committed and stays so"):
        found.call("after_commit", TOLD)


def test_one_that_ends_its_thread_fails_like_any_other(tmp_path):
    with pytest.raises(RunError, match=r"before_commit house:leave failed .* SystemExit: enough"):
        callbacks(tmp_path, before_commit=leave).call("before_commit", TOLD)


def test_one_that_does_not_return_is_left_when_the_run_is_told_to_end(tmp_path):
    inside = threading.Event()

    def wait(told):
        inside.set()
        threading.Event().wait()

    found = callbacks(tmp_path, after_commit=wait)

    def end():
        assert inside.wait(10)
        assert found.breaker.is_inside
        found.breaker.break_off()

    threading.Thread(target=end, daemon=True).start()
    with pytest.raises(BrokenOffError, match="after_commit house:wait did not return for batch 7"):
        found.call("after_commit", TOLD)
    assert not found.breaker.is_inside


def test_a_callback_that_computes_for_ever_is_no_work_to_the_watchdog(tmp_path):
    """Else a run that is told to stop would wait for it as long as it computes."""

    class Meter:
        looks = 0

        def look(self):
            self.looks += 1
            return self.looks

    class Run:
        committer = type("committer", (), {"callbacks": callbacks(tmp_path)})
        _tasks, _answers = None, 3

    meter = Meter()
    assert Driver._motion(Run, meter) != Driver._motion(Run, meter)
    Run.committer.callbacks.breaker._is_inside = True
    assert Driver._motion(Run, meter) == Driver._motion(Run, meter)


def test_the_ranges_of_a_batch_are_those_of_its_slices():
    def taken(source, start, end):
        return TakenSlice(source, Offset(source, start), Offset(source, end))

    found = ranges_of([taken("a", HOUR, 2 * HOUR), taken("a", 0, HOUR),
                       taken("b", 5 * HOUR, FOREVER_MICROS)])  # fmt: skip
    assert found["a"] == (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, 2, tzinfo=UTC))
    assert found["b"][0] == datetime(1970, 1, 1, 5, tzinfo=UTC)
    assert found["b"][1].year == 9999
    assert ranges_of([]) == {}


STEPS = ("noted before", "in before", "before", "committed", "noted after", "in after", "after")
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from tests.runtime.driving.test_callbacks import TOLD, callbacks
from dataclasses import replace
from tidemill.runfolder import called

folder, step, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
journal = open(folder / "journal", "a")

def tell(*words):
    journal.write(json.dumps(words) + "\\n")
    journal.flush()

def at(place, batch):
    if f"{place} {batch}" == step:
        os.kill(os.getpid(), signal.SIGKILL)

noted = called.Called.note
def note(self, key, batch):
    found = noted(self, key, batch)
    at("noted " + key.split("_")[0], batch)
    return found
called.Called.note = note

def before(told):
    tell("before", told.batch, told.repeat)
    at("in before", told.batch)

def after(told):
    tell("after", told.batch, told.repeat)
    at("in after", told.batch)

found = callbacks(folder, before_commit=before, after_commit=after)
table, done = folder / "table", folder / "done"
table.touch()
for batch in range(int(done.read_text()) if done.exists() else 0, batches):
    told = replace(TOLD, batch=batch)
    found.call("before_commit", told)
    at("before", batch)
    if str(batch) not in table.read_text().split():
        with table.open("a") as file:
            file.write(f"{batch} ")
        tell("commit", batch)
    at("committed", batch)
    found.call("after_commit", told)
    at("after", batch)
    done.write_text(str(batch + 1))
"""


def test_killed_at_every_step_no_batch_is_told_twice_that_it_is_the_first(tmp_path):
    """kill -9 of a process that does what a committer does, at each step of a batch of its own."""
    places = [f"{step} {batch}" for batch, step in enumerate(STEPS)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for place in (*places, "never"):
        command = [sys.executable, "-c", DRIVER, str(tmp_path), place, str(len(STEPS) + 1)]
        ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=False)
        assert ended.returncode == (0 if place == "never" else -signal.SIGKILL), ended.stderr
    told = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    for batch in range(len(STEPS) + 1):
        mine = [words for words in told if words[1] == batch]
        for kind in ("before", "after"):
            repeats = [words[2] for words in mine if words[0] == kind]
            assert repeats, f"{kind} was never called for batch {batch}"
            assert all(repeats[1:]), f"{kind} of batch {batch} was told {repeats}"
        assert [words[0] for words in mine].count("commit") == 1
        names = [words[0] for words in mine]
        assert names.index("before") < names.index("commit") < names.index("after")
    # Noted, then killed: the function learns that it may have been called, though it was not.
    assert [words[2] for words in told if words[:2] == ["before", 0]] == [True]
    assert [words[2] for words in told if words[:2] == ["after", 4]] == [True]
    assert [words[2] for words in told if words[:2] == ["before", 7]] == [False]

"""A driver in a process of its own: it waits for orders, and dies (kill -9) where one says so.

Spark's start is the dear part of a driver, so one can stand by while another one runs. Orders come
on stdin and answers go to stdout, a line of JSON each.
"""

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.config import SparkConfig
from tidemill.project import load
from tidemill.runtime import committer, seam
from tidemill.runtime.offsets import read_batch
from tidemill.runtime.registry import Registry
from tidemill.runtime.session import build_session
from tidemill.sources.legs import Course

ROOT = Path(__file__).parents[2]
_PATHS = (str(ROOT), os.environ.get("PYTHONPATH"))
COMMIT_STEPS = ("write", "output", "side", "registry")
"""Of a live batch: its files are written, its output is committed, its side files are removed, the
registry was told. Spark's own commit comes after all."""


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Trap:
    """Where this driver dies, armed once; an order that names no place disarms it."""

    place: str = ""
    history: int = -1  # batches of history begun, less one
    live: int = -1  # of the live log

    def at(self, place: str) -> None:
        if place == self.place:
            die()

    def begin(self, run: "committer.Committer", batch: int) -> None:
        """By what the batch holds: the switch may be decided while history is still read."""
        entry = read_batch(run.folder.checkpoint, batch)
        assert entry is not None
        if all(end.is_live for end in entry.ends.values()):
            self.live += 1
        else:
            self.history += 1
            self.at(f"history {self.history}")

    def in_live(self, step: str) -> None:
        if self.live >= 0:
            self.at(f"live {self.live}: {step}")


TRAP = Trap()


def set_traps() -> None:
    """Patch every place once; which one kills is a matter of the order."""
    write = seam.write_course

    def write_course(run: Path, course: Course) -> None:
        what = "switch" if course.switched else "extension"
        TRAP.at(f"before the {what}")
        write(run, course)
        TRAP.at(f"after the {what}")
        if course.switched and TRAP.place.endswith("s after the switch"):
            threading.Timer(float(TRAP.place.split()[0]), die).start()

    seam.write_course = write_course
    commit = committer.Committer.commit

    def counted(self: Any, frame: Any, batch: int) -> Any:
        TRAP.begin(self, batch)
        return commit(self, frame, batch)

    committer.Committer.commit = counted  # type: ignore[method-assign]
    committer.Committer._write = _followed(committer.Committer._write, "write")  # type: ignore[method-assign]
    committer.commit_files = _followed(committer.commit_files, "output")
    committer.remove_side_files = _followed(committer.remove_side_files, "side")
    Registry.record_batch = _followed(Registry.record_batch, "registry")  # type: ignore[method-assign]


def _followed(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        TRAP.in_live(step)
        return result

    return wrapped


def main(log: str) -> None:
    if sys.platform == "linux":  # whoever started it is gone: so is this one
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")  # the JVM inherits 1 and may print
    os.dup2(2, 1)

    def answer(**value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    set_traps()
    config = SparkConfig(master="local[2]", memory="1g")
    spark = build_session(config, 2, "victim", log=Path(log))
    answer(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        TRAP.place, TRAP.history, TRAP.live = order["die"], -1, -1
        try:
            result = load(order["config"]).resume(order["run"], spark=spark)
            answer(state=str(result.state))
        except Exception as error:
            answer(state="failed", error=f"{type(error).__name__}: {error}")
    spark.stop()


@dataclass
class Victim:
    """One such process, seen from the test."""

    process: subprocess.Popen[str]
    answers: "queue.Queue[dict[str, Any] | None]" = field(default_factory=queue.Queue)

    @classmethod
    def start(cls, log: Path) -> "Victim":
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.victim", str(log)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _PATHS))},
        )
        made = cls(process)
        threading.Thread(target=made._listen, daemon=True).start()
        return made

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def order(self, config: Path, run: str, die: str) -> None:
        assert self.process.stdin is not None
        text = json.dumps({"config": str(config), "run": run, "die": die})
        print(text, file=self.process.stdin, flush=True)

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None if it died."""
        return self.answers.get(timeout=seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Victims:
    """Drivers that stand by. Those that survive a scenario serve the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: list[Victim] = []
        self._count = 0

    def prepare(self, count: int) -> None:
        """Have as many, ready or starting."""
        while len(self._waiting) < count:
            self._count += 1
            self._waiting.append(Victim.start(self.folder / f"victim{self._count}.log"))
            time.sleep(0.1)

    def take(self) -> Victim:
        """A ready one."""
        self.prepare(1)
        chosen = self._waiting.pop(0)
        if chosen.answer(180) != {"ready": True}:
            raise AssertionError(f"a driver did not start; see {self.folder}")
        return chosen

    def give_back(self, victim: Victim) -> None:
        victim.answers.put({"ready": True})
        self._waiting.insert(0, victim)

    def end(self) -> None:
        while self._waiting:
            self._waiting.pop().end()


if __name__ == "__main__":
    main(sys.argv[1])

"""Drivers in processes of their own that stand by with a started Spark session, waiting for orders.

Spark's start is the dear part of a driver, so one can start while another one works. Orders go to
stdin and answers come from stdout, a line of JSON each. One that was killed answers with None.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
_READY = {"ready": True}


@dataclass
class Standby:
    """One such process, seen from the test."""

    process: subprocess.Popen[str]
    folder: Path  # its own: what it prints, and what its work leaves
    answers: "queue.Queue[dict[str, Any] | None]" = field(default_factory=queue.Queue)

    @classmethod
    def start(cls, module: str, folder: Path, env: Mapping[str, str]) -> "Standby":
        folder.mkdir(parents=True)
        given = {**os.environ, **env}
        paths = (env.get("PYTHONPATH"), str(ROOT), os.environ.get("PYTHONPATH"))
        with (folder / "driver.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(folder)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**given, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        made = cls(process, folder)
        threading.Thread(target=made._listen, daemon=True).start()
        return made

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def tell(self, **order: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; None if it died."""
        return self.answers.get(timeout=seconds)

    def processes(self) -> list[psutil.Process]:
        """Its own and those that work for it: the JVM and Spark's Python processes."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def end(self) -> None:
        """Also when it was stopped (SIGSTOP): its JVM could not notice then that it is gone."""
        with suppress(psutil.NoSuchProcess):
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()


class Pool:
    """Drivers that stand by. Those that survive serve again."""

    def __init__(self, module: str, folder: Path, environment: Callable[[Path], Mapping[str, str]]):
        """``environment`` tells what a driver with this folder gets."""
        self.module, self.folder, self.environment = module, folder, environment
        self._waiting: list[Standby] = []
        self._count = 0
        self._lock = threading.RLock()  # several may take drivers at a time

    def prepare(self, count: int) -> None:
        """Have as many, ready or starting."""
        with self._lock:
            while len(self._waiting) < count:
                self._count += 1
                folder = self.folder / f"driver{self._count}"
                self._waiting.append(Standby.start(self.module, folder, self.environment(folder)))
                time.sleep(0.1)

    def take(self) -> Standby:
        """A ready one."""
        with self._lock:
            self.prepare(1)
            chosen = self._waiting.pop(0)
        if chosen.answer(180) != _READY:
            raise AssertionError(f"a driver did not start; see {chosen.folder}")
        return chosen

    def give_back(self, driver: Standby) -> None:
        driver.answers.put(_READY)
        with self._lock:
            self._waiting.insert(0, driver)

    def end(self) -> None:
        while self._waiting:
            self._waiting.pop().end()


def orders(answers: Callable[[dict[str, Any]], None]) -> Iterator[dict[str, Any]]:
    """Inside of such a process, once it is ready: what it is told."""
    answers(_READY)
    for line in sys.stdin:
        yield json.loads(line)


def answering() -> Callable[[dict[str, Any]], None]:
    """Inside of such a process: how it answers. Called first, before a JVM inherits the output."""
    if sys.platform == "linux":  # whoever started it is gone: so is this one
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    out = os.fdopen(os.dup(1), "w")  # the JVM inherits 1 and may print
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=out, flush=True)

    return answer

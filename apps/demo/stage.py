"""What the demo is played on: a project in a folder, processes, and what is told of them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import tidemill
from tidemill.project import Project

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STEPS = 8
_PATIENCE = 600

out = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """The story does not go on."""


def step(number: int, title: str) -> None:
    """A headline."""
    out.print(f"\n[bold cyan]{number}/{STEPS}  {title}[/]")


def tell(text: str) -> None:
    """A sentence of the story."""
    out.print(text)


def shown(path: Path) -> Path:
    """A path as one would type it."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


@dataclass(frozen=True)
class Stage:
    """The project's folder."""

    folder: Path

    @classmethod
    def set_up(cls, folder: Path) -> "Stage":
        """The project's own files in a fresh folder; what an earlier demo made is removed."""
        shutil.rmtree(folder / ".tidemill", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        for path in (HERE / "project").iterdir():
            if path.is_file():
                shutil.copy(path, folder)
        return cls(folder)

    @property
    def project(self) -> Project:
        """The project as it is now."""
        return tidemill.load(self.folder / "tidemill.yaml")

    def command(self, *words: str, is_told: bool = True) -> str:
        """Run a command of Tidemill's as people type it, and show what it prints."""
        if is_told:
            out.print(f"[dim]$ tidemill {' '.join(words)}[/]")
        done = subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *words],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise DemoError(f"tidemill {' '.join(words)}:\n{done.stdout}{done.stderr}")
        if is_told:
            out.print(done.stdout.rstrip(), markup=False)
        return done.stdout

    @contextmanager
    def process(self, log: str, words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen]:
        """A process beside the story; it gets SIGTERM at the end, if it still runs."""
        with (self.folder / log).open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", *words], cwd=folder, stdout=file, stderr=file,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                end(process)

    def wait(self, what: str, is_so: Callable[[], bool], process: subprocess.Popen) -> None:
        """Wait until something is so, as long as the process that brings it about lives."""
        deadline = time.monotonic() + _PATIENCE
        while not is_so():
            is_over = process.poll() is not None or time.monotonic() > deadline
            if is_over and not is_so():
                logs = "\n".join(path.read_text()[-3_000:] for path in self.folder.glob("*.log"))
                raise DemoError(f"waited in vain for {what}\n{logs}")
            time.sleep(1)


def end(process: subprocess.Popen) -> None:
    """Let a process end, with those it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

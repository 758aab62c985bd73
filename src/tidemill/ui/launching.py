"""Commands that the page starts: each a process of its own, which outlives the page's server.

What a command prints goes into a file in its run's folder. The file is moved there as soon as the
command has said which run it drives; the command writes on into the same file.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.errors import ExitCode
from tidemill.runfolder.folder import COMMAND_LOG, RunFolder
from tidemill.ui.commands import Command

_STARTED = re.compile(r"^run (\d{8}_\d{6}_[0-9a-f]{4})", re.MULTILINE)
_KEPT = 100
_TAIL = 16_384
_EVERY = 0.1


@dataclass
class Launch:
    """A command that was started, and what is known of it since."""

    key: str
    command: Command
    home: Path
    log: Path
    begin: int  # where its text begins in the log
    run: str | None = None
    exit_code: int | None = None
    is_over: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        """The end of what it has printed."""
        with suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self.begin, size - _TAIL))
            return file.read().decode("utf-8", "replace")
        return ""

    @property
    def is_refused(self) -> bool:
        """Whether it ended with an error; a run that was stopped or cancelled ends otherwise."""
        return self.exit_code in (ExitCode.ERROR, ExitCode.MISUSE)

    def wait(self, seconds: float) -> None:
        """Wait until its run is known or it has ended, but not for long."""
        until = time.monotonic() + seconds
        while self.run is None and not self.is_over and time.monotonic() < until:
            time.sleep(_EVERY)

    def wait_for_end(self, seconds: float) -> None:
        """Wait whether it ends at once, as a command does that is refused."""
        until = time.monotonic() + seconds
        while not self.is_over and time.monotonic() < until:
            time.sleep(_EVERY)

    def _follow(self, process: subprocess.Popen[bytes]) -> None:
        """Find the run that it drives, move the log there, and learn how it ended."""
        while self.run is None and process.poll() is None:
            self._find_run()
            time.sleep(_EVERY)
        self._find_run()
        self.exit_code = process.wait()
        self.is_over = True

    def _find_run(self) -> None:
        found = None if self.run else _STARTED.search(self.text)
        if found is None:
            return
        folder = RunFolder.of(self.home, found[1]).path
        if folder.is_dir():
            with suppress(OSError):
                self.log = self.log.rename(folder / COMMAND_LOG)
            self.run = found[1]


class Launches:
    """The commands that this server has started, the last ones by key."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Launch] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self, command: Command, home: Path, run: str | None = None, key: str | None = None
    ) -> Launch:
        """Start a command; of a ``run`` that is known its log is in the run's folder at once.

        The same ``key`` twice, as a form that is sent twice has it, starts nothing again.
        """
        key = key or secrets.token_hex(8)
        with self._lock:
            if key in self._known:
                return self._known[key]
            launch = _begin(command, home, run, key)
            self._known[key] = launch
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return launch

    def get(self, key: str) -> Launch | None:
        """One of them."""
        return self._known.get(key)

    def of_run(self, run: str) -> Launch | None:
        """The last one that drives or drove a run."""
        found = [each for each in self._known.values() if each.run == run]
        return found[-1] if found else None


def _begin(command: Command, home: Path, run: str | None, key: str) -> Launch:
    if run is None:
        log = home / "starting" / f"{re.sub('[^0-9a-zA-Z]', '', key)[:40]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
    else:
        log = RunFolder.of(home, run).path / COMMAND_LOG
    with log.open("ab") as file:
        launch = Launch(key, command, home, log, file.tell(), run)
        process = subprocess.Popen(
            command.argv(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the page's server does not end it
        )
    follower = threading.Thread(target=launch._follow, args=(process,), daemon=True, name="launch")
    follower.start()
    return launch

"""Traps at the steps of a batch, in whichever Python process a step is done.

Processes agree by files in one folder (``TIDEMILL_FAULTS``): ``plan.json`` says what shall happen
where, ``armed`` that it is time, ``fired`` that it has happened, which it does once.
"""

import errno
import functools
import importlib.machinery
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.faults.clock import Clock, wrong
from tests.faults.steps import DECIDE_PHASES, DECIDE_SLICE, PLACES, Fault, Mode, table_of

VARIABLE = "TIDEMILL_FAULTS"
FILES = ("plan.json", "armed", "fired", "live", "blocked", "wake", "clock")
_READ = "tidemill.reading.task:read_task"


@dataclass(frozen=True)
class TrapPlan:
    """What shall happen where."""

    step: str
    places: tuple[str, ...]
    table: str | None
    fault: str
    mode: str
    catalog: str
    run: str  # the run's folder
    copy: str  # where a folder that is restored later is copied to
    pid: int  # the driver's
    shift: int  # of the clock, in seconds

    @classmethod
    def of(cls, value: dict[str, Any]) -> "TrapPlan":
        """From JSON."""
        return cls(**{**value, "places": tuple(value["places"])})

    @property
    def is_course(self) -> bool:
        """The decision to switch: it is made once, so the trap is armed from the start."""
        return self.places == (DECIDE_PHASES,)


class TrapFolder:
    """The files by which processes agree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def touch(self, name: str, text: str = "") -> None:
        draft = self.path / f"{name}.{os.getpid()}.tmp"
        draft.write_text(text, "utf-8")
        draft.replace(self.path / name)

    def remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def fire(self) -> bool:
        """True for the first one that asks."""
        try:
            os.close(os.open(self.path / "fired", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def read_plan(self) -> TrapPlan:
        return TrapPlan.of(json.loads((self.path / "plan.json").read_text("utf-8")))

    def lay(self, plan: TrapPlan | None) -> None:
        """A new plan; without one nothing happens, but the clock stays as it is."""
        self.remove(*(name for name in FILES if name != "clock"))
        if plan is not None:
            self.touch("plan.json", json.dumps(asdict(plan)))
            if plan.is_course:
                self.touch("armed")


def lay_traps() -> None:
    """Called at the start of a process: functions are wrapped when their modules are loaded."""
    folder = TrapFolder(Path(os.environ[VARIABLE]))
    clock = Clock(folder.path / "clock")
    clock.set_up()
    traps = Traps(folder, clock)
    traps.change(os)
    sys.meta_path.insert(0, _Finder([traps.change, clock.change]))  # type: ignore[arg-type]


class _Finder:
    """Changes modules of the product and of the catalogs right after they are loaded."""

    def __init__(self, changes: list[Callable[[ModuleType], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> Any:
        del target
        if not name.startswith(("tidemill.", "pyiceberg.catalog.")):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for change in self.changes:
                change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Traps:
    """The wrappers of one process."""

    def __init__(self, folder: TrapFolder, clock: Clock) -> None:
        self.folder, self.clock = folder, clock

    def change(self, module: ModuleType) -> None:
        for place in PLACES:
            where, _, path = place.partition(":")
            if where == module.__name__:
                *owners, name = path.split(".")
                owner = functools.reduce(getattr, owners, module)
                wrap = self._around_rows if place == _READ else self._around
                setattr(owner, name, wrap(place, getattr(owner, name)))

    def _around(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            plan = self._due(place, args)
            call = functools.partial(function, *args, **kwargs)
            result = call() if plan is None else self._act(plan, call, args)
            if place == DECIDE_SLICE and "/slices/" in str(args[1]):
                self._is_live()
            return result

        return wrapped

    def _around_rows(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A reader gives rows bit by bit: it is done when the last one is given."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
            plan = self._due(place, args)
            if plan is None:
                yield from function(*args, **kwargs)
            elif plan.fault in (Fault.KILL, Fault.LOST):
                yield from function(*args, **kwargs)
                self._act(plan, lambda: None, args)
            else:
                self._act(plan, lambda: None, args)
                yield from function(*args, **kwargs)

        return wrapped

    def _is_live(self) -> None:
        """The first live slice is decided: at the switch, what comes now is its batch."""
        self.folder.touch("live")
        is_waiting = self.folder.has("plan.json") and not self.folder.has("armed")
        if is_waiting and self.folder.read_plan().mode == Mode.SWITCH:
            self.folder.touch("armed")

    def _due(self, place: str, args: tuple[Any, ...]) -> TrapPlan | None:
        if not self.folder.has("armed") or self.folder.has("fired"):
            return None
        plan = self.folder.read_plan()
        if place not in plan.places or not _is_meant(plan, place, args):
            return None
        return plan if self.folder.fire() else None

    def _act(self, plan: TrapPlan, call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        fault = plan.fault
        if fault in (Fault.IO, Fault.FULL):
            raise _failed(plan, args)
        if fault == Fault.RESTORED:
            copy_folder(Path(plan.run), Path(plan.copy))
        elif fault == Fault.CLOCK:
            self.folder.touch("clock", wrong(plan.shift, self.clock.right))
            time.sleep(0.1)  # every process has looked
        elif fault == Fault.ZOMBIE:
            self.folder.touch("blocked")
            while not self.folder.has("wake"):
                time.sleep(0.02)
        result = call()
        if fault == Fault.KILL:
            os.kill(plan.pid, signal.SIGKILL)
            time.sleep(600)  # a worker dies with its JVM
        if fault in (Fault.LOST, Fault.LANDED):
            raise _answer(plan, args)
        return result


def copy_folder(folder: Path, copy: Path) -> None:
    """As a backup would: what vanishes meanwhile is not in it."""
    for path in sorted(folder.rglob("*")):
        target = copy / path.relative_to(folder)
        with suppress(FileNotFoundError):
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


def _is_meant(plan: TrapPlan, place: str, args: tuple[Any, ...]) -> bool:
    """Among the calls of a function the one that is this step."""
    if place == DECIDE_SLICE:
        return "/slices/" in str(args[1])
    if place == DECIDE_PHASES:
        return bool(args[1].switched)
    if plan.table is not None:
        _, table, _, updates = args
        adds = any(update.action == "add-snapshot" for update in updates)
        return adds and table_of(table.name()[-1]) == plan.table
    return True


def _failed(plan: TrapPlan, args: tuple[Any, ...]) -> BaseException:
    """What a step raises that was not done."""
    number = errno.EIO if plan.fault == Fault.IO else errno.ENOSPC
    if plan.step == "registry":
        full = "database or disk is full"
        return args[0]._unusable("disk I/O error" if plan.fault == Fault.IO else full)  # type: ignore[no-any-return]
    if plan.table is not None and plan.catalog == "rest":
        from pyiceberg.exceptions import ServiceUnavailableError
        from requests.exceptions import ConnectionError as Refused

        refused = Refused("the catalog cannot be reached")
        full_catalog = ServiceUnavailableError("ServiceFailure: No space left on device")
        return refused if plan.fault == Fault.IO else full_catalog
    return OSError(number, os.strerror(number), plan.step)


def _answer(plan: TrapPlan, args: tuple[Any, ...]) -> BaseException:
    """What a step raises that was done."""
    if plan.fault == Fault.LANDED:
        from pyiceberg.exceptions import CommitFailedException

        if plan.table is None:
            return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), plan.step)
        return CommitFailedException("the table was changed by another writer")
    if plan.step == "registry":
        return args[0]._unusable("database is locked")  # type: ignore[no-any-return]
    if plan.table is not None and plan.catalog == "rest":
        from pyiceberg.exceptions import CommitStateUnknownException
        from requests.exceptions import ReadTimeout

        unknown = CommitStateUnknownException("504: the gateway had no answer in time")
        return unknown if plan.table in ("late", "dead") else ReadTimeout("no answer in time")
    if plan.table is not None:
        from sqlalchemy.exc import OperationalError

        return OperationalError("commit", {}, Exception("the connection was closed"))
    return TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), plan.step)

"""The campaign: at every step of a batch every fault, in every mode; tables must equal the oracle.

Or the run stops with an error, and `resume`, or the command that the error names, makes them equal.
Never a silent difference.
"""

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from tests.faults.catalogs import NAMES, Catalogs, UnavailableError
from tests.faults.clock import wrong
from tests.faults.driver import Drivers
from tests.faults.field import Field, Plot
from tests.faults.steps import STEPS, Fault, Mode, Step, has_meaning
from tests.faults.traps import TrapFolder, TrapPlan
from tests.kafka.broker import Broker
from tests.reliability.standby import Standby

_PATIENCE = 120.0
_RESUMES = 3
_HOUR = 3_600
_RECOVER = "--recover-from-archive"
_AGAIN = "start the backfill again"
"""What errors name as the way out."""


@dataclass(frozen=True)
class Combination:
    """One line of the report."""

    number: int
    step: Step
    fault: Fault
    mode: Mode
    catalog: str
    pipeline: str
    shift: int = 0

    @property
    def name(self) -> str:
        return f"c{self.number:03d}"

    def __str__(self) -> str:
        fault = f"clock {self.shift // _HOUR:+d} h" if self.shift else str(self.fault)
        return f"{self.mode}: {self.step.name}: {fault} ({self.catalog}, {self.pipeline})"


def all_combinations() -> list[Combination]:
    """Each with a number that stays; catalogs, pipelines and the clock's way take turns."""
    made: list[Combination] = []
    for mode in Mode:
        for fault in Fault:
            for place, step in enumerate(STEPS):
                if not has_meaning(step, fault, mode):
                    continue
                turn = place + list(Mode).index(mode)
                only_folded = step.name in ("state", "commit each")
                pipeline = "folded" if only_folded else ("folded", "native")[turn % 2]
                catalog = NAMES[(turn + list(Fault).index(fault)) % 3]
                shift = (_HOUR, -_HOUR)[turn // 2 % 2] if fault is Fault.CLOCK else 0
                made.append(Combination(len(made), step, fault, mode, catalog, pipeline, shift))
    return made


@dataclass
class Outcome:
    """What a combination came to."""

    combination: Combination
    story: list[str] = field(default_factory=list)
    difference: str | None = None
    seconds: float = 0.0

    def tell(self, what: str) -> None:
        self.story.append(what)

    @property
    def is_good(self) -> bool:
        return self.difference is None


class Campaign:
    """Drivers that stand by, the ground, and one combination after the other."""

    def __init__(
        self, folder: Path, broker: Broker, topic: str, catalogs: tuple[str, ...] = NAMES
    ) -> None:
        self.folder = folder
        self.drivers = Drivers(folder / "drivers")
        self.drivers.prepare(2)
        self.catalogs = Catalogs(folder / "catalogs")
        self.ground = Field(folder / "ground", broker, topic, self.catalogs)
        self.missing = dict[str, str]()  # catalogs that cannot be had, and why
        for name in catalogs:
            try:
                self.catalogs.section(name)
            except UnavailableError as error:
                self.missing[name] = str(error)
        present = tuple(name for name in catalogs if name not in self.missing)
        self.ground.archive(present, self._run_archive)

    def end(self) -> None:
        self.drivers.end()
        self.catalogs.end()

    def _run_archive(self, config: Path) -> dict[str, Any]:
        driver = self.drivers.take()
        driver.tell(do="run_archive", config=str(config))
        done = driver.answer(_PATIENCE)
        assert done is not None and done["state"] == "stopped", done
        self.drivers.give_back(driver)
        return done

    def play(self, combination: Combination) -> Outcome:
        """Never raises: what went wrong is the outcome."""
        began, outcome = time.monotonic(), Outcome(combination)
        play = Play(self, combination, outcome)
        try:
            play.act()
        except AssertionError as error:
            outcome.difference = f"{error}"
        except Exception as error:
            outcome.difference = f"{type(error).__name__}: {error}"
        finally:
            play.leave()
        outcome.seconds = time.monotonic() - began
        return outcome


class Play:
    """One combination."""

    def __init__(self, campaign: Campaign, combination: Combination, outcome: Outcome) -> None:
        self.campaign, self.combination, self.outcome = campaign, combination, outcome
        self.taken: list[Standby] = []
        is_history = combination.mode is Mode.HISTORY
        self.plot: Plot = campaign.ground.plot(
            combination.name, combination.catalog, history=is_history
        )
        self.run = ""

    def act(self) -> None:
        chosen = self.combination
        if chosen.fault in (Fault.KILL, Fault.ZOMBIE):
            self.campaign.drivers.prepare(2)
        driver = self._take()
        self.run = self._begin(driver)
        plays: dict[Fault, Callable[[Standby], str]] = {
            Fault.KILL: self._kill,
            Fault.RESTORED: self._restore,
            Fault.CLOCK: self._jump,
            Fault.ZOMBIE: self._wake,
        }
        last = plays.get(chosen.fault, self._fail)(driver)
        self.plot.check(self.run, last)

    def _begin(self, driver: Standby) -> str:
        end = None if self.plot.end is None else self.plot.end.isoformat()
        pipeline, start = self.combination.pipeline, self.plot.start.isoformat()
        return str(self._ask(driver, do="plan", pipeline=pipeline, start=start, end=end)["run"])

    def leave(self) -> None:
        """Drivers that live serve the next one; one that is still at work is not waited for."""
        for driver in self.taken:
            if driver.process.poll() is None and not self.outcome.difference:
                TrapFolder(driver.folder).remove("clock")
                self.campaign.drivers.give_back(driver)
            else:
                driver.end()

    def _kill(self, driver: Standby) -> str:
        answer = self._drive(driver, trap=True)
        assert answer is None, f"it was not killed: {answer}"
        self.outcome.tell("killed")
        self.campaign.drivers.prepare(2)
        self._finish(self._take())
        return self.run

    def _fail(self, driver: Standby) -> str:
        """An error of a step: the run goes on, or it stops and is resumed."""
        answer = self._drive(driver, trap=True)
        assert self._traps(driver).has("fired"), f"the fault did not happen: {answer}"
        if not _is_over(answer):
            self._stopped(answer)
            self._finish(driver)
        else:
            self.outcome.tell("went on")
        return self.run

    def _restore(self, driver: Standby) -> str:
        """Live slices are cut by the clock: first as if the log were just being written, slowly.

        So a run that decided them anew, after all of it, would cut them differently.
        """
        traps = self._traps(driver)
        if self.plot.seam is not None:
            early = self.plot.seam - timedelta(seconds=1) - datetime.now(UTC)
            slow = wrong(early.total_seconds(), time.time(), speed=0.3, everywhere=False)
            traps.touch("clock", slow)
        answer = self._drive(driver, trap=True, stop_after=2 if self.plot.seam is None else 4)
        assert answer is not None and answer["state"] == "stopped", answer
        assert traps.has("fired"), "the folder was not copied"
        traps.remove("clock")
        folder = self.plot.run_folder(self.run)
        shutil.rmtree(folder)
        Path(self._plan().copy).rename(folder)
        answer = self._drive(driver)
        if _is_over(answer):
            self.outcome.tell("resumed")
            return self.run
        self._stopped(answer)
        return self._follow(driver, str(answer))

    def _follow(self, driver: Standby, error: str) -> str:
        """Do what the error names; returns the run that has the rows then."""
        if _RECOVER in error:
            self.campaign.ground.recoverable(self.plot)
            made = self._ask(driver, do="recover", pipeline=self.combination.pipeline, run=self.run)
            self.outcome.tell("recovered from the archive")
            self._finish(driver, str(made["run"]))
            return str(made["run"])
        if _AGAIN in error:
            self._ask(driver, do="cancel", run=self.run)
            self.run = self._begin(driver)
            self.outcome.tell("cancelled and begun again")
        self._finish(driver)
        return self.run

    def _jump(self, driver: Standby) -> str:
        """The clock is wrong for seconds, also for a driver that begins then; then it is right."""
        traps = self._traps(driver)
        self._tell_drive(driver, trap=True)
        self._await(lambda: traps.has("fired") or not driver.answers.empty(), "the jump")
        time.sleep(1.5)
        if driver.answers.empty():
            self._stop()
        answer = driver.answer(_PATIENCE)
        assert traps.has("fired"), f"the clock did not jump: {answer}"
        if self.plot.is_done(self.run):
            self.outcome.tell("went on")
            return self.run
        self._stopped(answer)
        self._tell_drive(driver)
        self._await_answer(driver, 2.0)
        traps.remove("clock")
        self.outcome.tell("resumed, the clock is right again")
        answer = driver.answer(_PATIENCE)
        if not _is_over(answer):
            self._stopped(answer)
            self._finish(driver)
        return self.run

    def _wake(self, driver: Standby) -> str:
        """The driver hangs; from another machine another one goes on, and then it wakes up."""
        traps = self._traps(driver)
        self._tell_drive(driver, trap=True)
        self._await(
            lambda: traps.has("blocked") or not driver.answers.empty(), "the driver to hang"
        )
        assert traps.has("blocked"), f"it did not hang: {driver.answer(1)}"
        processes = driver.processes()
        _signal(processes, signal.SIGSTOP)
        folder = self.plot.run_folder(self.run)
        for name in ("lease", "jvm.json"):  # which another machine does not see
            (folder / name).unlink(missing_ok=True)
        self.campaign.drivers.prepare(1)
        self._finish(self._take())
        before = (self.plot.tables(self.run), self._state)
        traps.touch("wake")
        _signal(processes, signal.SIGCONT)
        answer = driver.answer(_PATIENCE)
        assert answer is not None and answer["state"] == "failed", f"the zombie went on: {answer}"
        self._stopped(answer, "the zombie ends")
        found = (self.plot.tables(self.run), self._state)
        assert found == before, f"the zombie changed {before} to {found}"
        return self.run

    @property
    def _state(self) -> str:
        return str(self.plot.project.registry.get(self.run).state)

    def _finish(self, driver: Standby, run: str = "") -> None:
        """Resume until it is at its end: each time an error may stop it again."""
        for _ in range(_RESUMES):
            answer = self._drive(driver, run=run)
            if _is_over(answer):
                self.outcome.tell("resumed")
                return
            self._stopped(answer)
        raise AssertionError("it was resumed, and stopped again and again")

    def _stop(self) -> None:
        from tidemill.errors import RunError

        try:
            self.plot.project.stop(self.run)
        except RunError:
            return  # it has ended by itself

    def _stopped(self, answer: dict[str, Any] | None, what: str = "stopped") -> None:
        assert answer is not None, "the driver died"
        assert not answer.get("bare"), f"an error that is not ours: {answer['error']}"
        told = str(answer.get("error", answer["state"])).splitlines()[0]
        self.outcome.tell(f"{what}: {told}")

    def _plan(self) -> TrapPlan:
        chosen, folder = self.combination, self.plot.run_folder(self.run)
        return TrapPlan(
            step=chosen.step.name,
            places=chosen.step.places_in(chosen.mode),
            table=chosen.step.table,
            fault=chosen.fault,
            mode=chosen.mode,
            catalog=chosen.catalog,
            run=str(folder),
            copy=str(folder.with_name(f"{self.run}.copy")),
            pid=0,
            shift=chosen.shift,
        )

    def _drive(self, driver: Standby, **order: Any) -> dict[str, Any] | None:
        self._tell_drive(driver, **order)
        return driver.answer(_PATIENCE)

    def _tell_drive(
        self, driver: Standby, *, trap: bool = False, stop_after: int | None = None, run: str = ""
    ) -> None:
        plan = asdict(self._plan()) if trap else None
        until = None if self.plot.goal is None else self.plot.goal.isoformat()
        driver.tell(
            do="drive", config=str(self.plot.config), run=run or self.run, trap=plan, until=until,
            stop_after=stop_after,
        )  # fmt: skip

    def _ask(self, driver: Standby, **order: Any) -> dict[str, Any]:
        driver.tell(config=str(self.plot.config), **order)
        answer = driver.answer(_PATIENCE)
        assert answer is not None and "error" not in answer, f"{order['do']}: {answer}"
        return answer

    def _take(self) -> Standby:
        driver = self.campaign.drivers.take()
        self.taken.append(driver)
        return driver

    def _traps(self, driver: Standby) -> TrapFolder:
        return TrapFolder(driver.folder)

    def _await(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not is_done():
            assert time.monotonic() < deadline, f"waited {_PATIENCE:.0f} s for {what}"
            time.sleep(0.02)

    def _await_answer(self, driver: Standby, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while driver.answers.empty() and time.monotonic() < deadline:
            time.sleep(0.02)


def _is_over(answer: dict[str, Any] | None) -> bool:
    """At its end: a backfill is finished, and a live run that nobody stops stops at its goal."""
    return answer is not None and answer["state"] in ("finished", "stopped")


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)

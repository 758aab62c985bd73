"""A driver in a process of its own that does what it is told, with traps in its way."""

import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.faults.steps import Mode
from tests.faults.traps import VARIABLE, TrapFolder, TrapPlan
from tests.reliability.standby import Pool, answering, orders
from tidemill.config.spark import SparkConfig
from tidemill.errors import TidemillError
from tidemill.project import Project, Until, load
from tidemill.runtime.reports.results import Progress
from tidemill.runtime.spark.session import build_session

SLICE = "2 s"
_SITE = str(Path(__file__).parent / "site")
_BATCHES = 1
"""So many batches of the mode are left in peace before the fault comes."""


class Drivers(Pool):
    """Drivers that stand by, with traps."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tests.faults.driver", folder, _environment)


def _environment(folder: Path) -> dict[str, str]:
    return {VARIABLE: str(folder), "PYTHONPATH": _SITE}


class Worker:
    """Carries out orders in this process."""

    def __init__(self, spark: SparkSession, folder: TrapFolder) -> None:
        self.spark, self.folder = spark, folder

    def run_archive(self, order: dict[str, Any]) -> dict[str, Any]:
        until = Until(caught_up=True)
        project = load(order["config"])
        result = project.run_archive(["plays"], trigger="200 ms", until=until, spark=self.spark)
        return {"state": str(result.state), "frontier": result.totals.frontier}

    def plan(self, order: dict[str, Any]) -> dict[str, Any]:
        project, pipeline = load(order["config"]), order["pipeline"]
        options = {"slice": SLICE, "spark": self.spark}
        if order["end"] is not None:
            plan = project.plan(pipeline, order["start"], order["end"], **options)
        else:
            plan = project.plan_run(pipeline, order["start"], **options)
        return {"run": project.prepare(plan).run}

    def recover(self, order: dict[str, Any]) -> dict[str, Any]:
        project = load(order["config"])
        manifest = project.prepare_recovery(order["pipeline"], order["run"], spark=self.spark)
        return {"run": manifest.run}

    def cancel(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"state": str(load(order["config"]).cancel(order["run"]).state)}

    def drive(self, order: dict[str, Any]) -> dict[str, Any]:
        """Begin or go on; ``trap`` says what happens, ``stop_after`` how long it goes on then."""
        project, run = load(order["config"]), order["run"]
        trap = order.get("trap")
        self.folder.lay(None if trap is None else TrapPlan.of({**trap, "pid": os.getpid()}))
        watch = Watch(project, run, self.folder, order.get("stop_after"))
        until = order.get("until")
        goal = None if until is None else Until(moment=datetime.fromisoformat(until))
        result = project.resume(run, until=goal, on_progress=watch, spark=self.spark)
        return {"state": str(result.state)}


class Watch:
    """Called after every batch: arms the trap, and stops a run that went on long enough."""

    def __init__(self, project: Project, run: str, folder: TrapFolder, stop_after: int | None):
        self.project, self.run, self.folder, self.stop_after = project, run, folder, stop_after
        self.seen, self.went_on = 0, 0

    def __call__(self, progress: Progress) -> None:
        if self.folder.has("fired"):
            self.went_on += 1
            if self.went_on == self.stop_after:
                self.project.stop(self.run)
        elif self.folder.has("plan.json") and not self.folder.has("armed"):
            mode = self.folder.read_plan().mode
            self.seen += mode == Mode.HISTORY or (mode == Mode.LIVE and self.folder.has("live"))
            if self.seen >= _BATCHES:
                self.folder.touch("armed")


def main(folder: Path) -> None:
    answer = answering()
    config = SparkConfig(master="local[2]", memory="1g")
    spark = build_session(config, 2, "faults", log=folder / "spark.log", warm=True)
    worker = Worker(spark, TrapFolder(folder))
    for order in orders(answer):
        act: Callable[[dict[str, Any]], dict[str, Any]] = getattr(worker, order["do"])
        try:
            answer(act(order))
        except TidemillError as error:
            answer({"state": "failed", "error": error.text()})
        except Exception as error:
            answer({"state": "failed", "error": f"{type(error).__name__}: {error}", "bare": True})
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

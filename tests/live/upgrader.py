"""An upgrade in a process of its own, which dies (kill -9) where one says so.

Preparing an upgrade needs no Spark where the code is known; driving the new run does, so drivers
stand by with a session.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.reliability.standby import ROOT, Pool, answering, orders
from tidemill.config.spark import SparkConfig
from tidemill.errors import RequestError
from tidemill.project import Until, load
from tidemill.runtime.driving import committer
from tidemill.runtime.spark.session import build_session
from tidemill.runtime.starts import handover, upgrading

PREPARING = ("planned", "stopped", "state", "written")
"""The plan is made; the old run has ended; state is carried; the new run is written down."""
DRIVING = ("batch", "taken", "settled", "committed")
"""The new run's batch is computed; it has decided to take over; it has the name; its rows are in
the tables."""
NAME = "plays"


class Trap:
    """Where this process dies; empty: nowhere."""

    place = ""

    @classmethod
    def after(cls, function: Callable[..., Any], place: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if cls.place == place:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped


def set_traps() -> None:
    upgrade, driven = upgrading.Upgrade, committer.Committer
    upgrade.plan = Trap.after(upgrade.plan, "planned")  # type: ignore[method-assign]
    upgrade.stop = Trap.after(upgrade.stop, "stopped")  # type: ignore[method-assign]
    upgrading.write_carried = Trap.after(upgrading.write_carried, "state")
    upgrading.write_run = Trap.after(upgrading.write_run, "written")
    driven._write = Trap.after(driven._write, "batch")  # type: ignore[method-assign]
    handover.decide = Trap.after(handover.decide, "taken")
    handover.Handover._settle = Trap.after(handover.Handover._settle, "settled")  # type: ignore[method-assign]
    driven._commit_outputs = Trap.after(driven._commit_outputs, "committed")  # type: ignore[method-assign]


def die_preparing(config: Path, place: str, *, rebuild: bool) -> None:
    """Prepare the upgrade in a process that dies at this place."""
    command = [sys.executable, "-m", "tests.live.upgrader", str(config), place, str(int(rebuild))]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def upgraded(config: str, seconds: float, spark: Any, *, rebuild: bool = False) -> Any:
    """What a person does after a crash: the same command again; it may be done already."""
    project = load(config)
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=seconds))
    try:
        return project.carry(NAME).upgrade(rebuild=rebuild, until=until, spark=spark)
    except RequestError as error:
        if "already" not in error.message:
            raise
        return project.resume(NAME, until=until, spark=spark)


class Upgraders(Pool):
    """Drivers that stand by, to be killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tests.live.upgrader", folder, lambda _: {})


def main(folder: Path) -> None:
    answer = answering()
    config = SparkConfig(master="local[2]", memory="1g")
    spark = build_session(config, 2, "upgrader", log=folder / "spark.log")
    for order in orders(answer):
        Trap.place = order["die"]
        try:
            result = upgraded(order["config"], order["seconds"], spark)
            answer({"state": str(result.state)})
        except Exception as error:
            answer({"state": "failed", "error": f"{type(error).__name__}: {error}"})
    spark.stop()


if __name__ == "__main__":
    set_traps()
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        Trap.place = sys.argv[2]
        load(sys.argv[1]).carry(NAME).prepare(rebuild=sys.argv[3] == "1")

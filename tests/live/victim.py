"""A driver in a process of its own: it waits for orders, and dies (kill -9) where one says so."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.reliability.standby import Pool, answering, orders
from tidemill.config.spark import SparkConfig
from tidemill.connectors.sinks.iceberg import table
from tidemill.project import load
from tidemill.runfolder.offset_log import read_batch
from tidemill.runfolder.phases import HistoryPhases
from tidemill.runtime.driving import committer, seam
from tidemill.runtime.registry import Registry
from tidemill.runtime.spark.session import build_session

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
    write = seam.write_phases

    def write_phases(run: Path, history: HistoryPhases) -> HistoryPhases:
        what = "switch" if history.switched else "extension"
        TRAP.at(f"before the {what}")
        decided = write(run, history)
        TRAP.at(f"after the {what}")
        if history.switched and TRAP.place.endswith("s after the switch"):
            threading.Timer(float(TRAP.place.split()[0]), die).start()
        return decided

    seam.write_phases = write_phases
    commit = committer.Committer.commit

    def counted(self: Any, frame: Any, batch: int) -> Any:
        TRAP.begin(self, batch)
        return commit(self, frame, batch)

    committer.Committer.commit = counted  # type: ignore[method-assign]
    committer.Committer._write = _followed(committer.Committer._write, "write")  # type: ignore[method-assign]
    table.commit_files = _followed(table.commit_files, "output")
    committer.remove_side_files = _followed(committer.remove_side_files, "side")
    Registry.record_batch = _followed(Registry.record_batch, "registry")  # type: ignore[method-assign]


def _followed(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        TRAP.in_live(step)
        return result

    return wrapped


def main(folder: Path) -> None:
    answer = answering()
    set_traps()
    config = SparkConfig(master="local[2]", memory="1g")
    spark = build_session(config, 2, "victim", log=folder / "spark.log")
    for order in orders(answer):
        TRAP.place, TRAP.history, TRAP.live = order["die"], -1, -1
        try:
            result = load(order["config"]).resume(order["run"], spark=spark)
            answer({"state": str(result.state)})
        except Exception as error:
            answer({"state": "failed", "error": f"{type(error).__name__}: {error}"})
    spark.stop()


class Victims(Pool):
    """Drivers that stand by, to be killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__("tests.live.victim", folder, lambda _: {})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

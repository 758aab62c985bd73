"""An upgrade in a process of its own, which dies (kill -9) where one says so.

Only a batch needs Spark. Drivers stand by with a session to die at one; whatever comes before a
batch, and what is left to do after the decision, is done by forks of one light process.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.reliability.standby import ROOT, Pool, answering, orders
from tidemill.config.spark import SparkConfig
from tidemill.connectors.sinks.contract import Sink
from tidemill.errors import RequestError
from tidemill.planning.offsets import BatchOffsets
from tidemill.project import Until, load
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import read_batch
from tidemill.runfolder.succession import Decision
from tidemill.runtime.driving.committer import Batch, Committer
from tidemill.runtime.registry import Registry
from tidemill.runtime.spark.session import build_session
from tidemill.runtime.starts import handover, upgrading

PREPARING = ("planned", "stopped", "given up", "state", "manifest", "known", "written")
"""The plan is made; the old run has ended; an earlier attempt may never commit; state is carried;
the new run has a manifest; the registry knows it; its archives are held."""
DRIVING = ("discarded", "batch", "taken", "committed")
"""A batch that gives nothing is committed; the first batch that may give rows is computed; the new
run has decided to take over; rows of it are in the tables."""
SETTLING = ("handed over", "settled")
"""After the decision: the registry knows it; nothing is held for the old run any more."""
NAME = "plays"


class Trap:
    """Where this process dies; empty: nowhere."""

    place = ""

    @classmethod
    def set(
        cls, owner: Any, name: str, place: str, when: Callable[..., bool] = lambda *_: True
    ) -> None:
        """Die after this function has done its work; ``when`` gets its result and arguments."""
        function = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if cls.place == place and when(result, *args):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, wrapped)


def set_traps() -> None:
    Trap.set(upgrading.Upgrade, "plan", "planned")
    Trap.set(upgrading.Upgrade, "stop", "stopped")
    Trap.set(handover, "decide", "given up", _is_made(Decision.GIVEN_UP))
    Trap.set(upgrading, "write_carried", "state")
    Trap.set(RunFolder, "write_manifest", "manifest")
    Trap.set(Registry, "add", "known")
    Trap.set(upgrading, "write_run", "written")
    Trap.set(Committer, "_commit_outputs", "discarded", _gives_nothing)
    Trap.set(Committer, "_write", "batch", _may_give)
    Trap.set(handover, "decide", "taken", _is_made(Decision.TAKEN))
    Trap.set(Registry, "hand_over", "handed over")
    Trap.set(handover.Handover, "_settle", "settled")
    Trap.set(Committer, "_commit_outputs", "committed", _gives_rows)


def _is_made(wanted: Decision) -> Callable[..., bool]:
    """Whether this decision was asked for, and holds."""
    return lambda found, old, successor, asked: found is asked is wanted


def _is_discarded(committer: Committer, sink: Sink, now: BatchOffsets) -> bool:
    lost = committer.manifest.outputs.discard.get(sink.place)
    return lost is not None and lost.includes(now)


def _gives_nothing(_: object, committer: Committer, batch: Batch, written: object) -> bool:
    return all(_is_discarded(committer, sink, batch.now) for sink in committer.sinks.values())


def _may_give(_: object, committer: Committer, frame: object, batch: int) -> bool:
    now = read_batch(committer.folder.checkpoint, batch)
    assert now is not None
    return not all(_is_discarded(committer, sink, now) for sink in committer.sinks.values())


def _gives_rows(
    _: object, committer: Committer, batch: Batch, written: dict[str, list[bytes]]
) -> bool:
    sinks = committer.sinks.items()
    given = [name for name, sink in sinks if not _is_discarded(committer, sink, batch.now)]
    return any(written.get(name) for name in given)


def die_lightly(config: Path, places: Sequence[str]) -> None:
    """Give the command once for each place, in a process without Spark that dies there."""
    command = [sys.executable, "-m", "tests.live.upgrader", str(config), *places]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def _die_in_forks(config: str, places: Sequence[str]) -> None:
    """What the forks import is imported once; nothing has run here that a fork could not take."""
    for place in places:
        child = os.fork()
        if child == 0:
            Trap.place = place
            try:
                upgraded(config, 0, None)
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"it was to die at {place!r} and did not")


def upgraded(config: str, seconds: float, spark: Any) -> Any:
    """What a person does after a crash: the same command again; it may be done already."""
    project = load(config)
    until = Until(moment=datetime.now(UTC) + timedelta(seconds=seconds))
    try:
        return project.carry(NAME).upgrade(until=until, spark=spark)
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
        _die_in_forks(sys.argv[1], sys.argv[2:])

"""A driver that kills itself (kill -9) right after a named step of a given batch.

``python -m tests.reliability.victim STEP BATCH <tidemill's arguments>``
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tidemill.cli.main import main
from tidemill.connectors.sinks.iceberg import table
from tidemill.runtime.driving import committer, driver
from tidemill.runtime.registry import Registry

STEPS = ("write", "output", "late", "side", "commit", "registry")
"""After the files are written, the output committed, the late rows committed, the side files
removed, everything of the batch done, the registry told. Spark's own commit comes after all. Of
batches with dead rows also: ``dead``, when they are committed; ``failed``, when their files are
removed."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if when(*args, **kwargs):
            die()
        return result

    return wrapped


def arm(step: str, batch: int) -> None:
    """Patch exactly one step of one batch."""
    now = {"batch": -1}
    commit = committer.Committer.commit

    def counted(self: Any, frame: Any, number: int) -> Any:
        now["batch"] = number
        return commit(self, frame, number)

    committer.Committer.commit = counted  # type: ignore[method-assign]

    def at_batch(*_: Any, **__: Any) -> bool:
        return now["batch"] == batch

    def is_table(suffix: str) -> Callable[..., bool]:
        def matches(catalog: Any, name: str, *_: Any, **__: Any) -> bool:
            found = next(
                (side for side in ("late", "dead") if name.endswith(f"__{side}")), "output"
            )
            return at_batch() and found == suffix

        return matches

    if step == "write":
        committer.Committer._write = after(committer.Committer._write, at_batch)  # type: ignore[method-assign]
    elif step in ("output", "late", "dead"):
        table.commit_files = after(table.commit_files, is_table(step))
    elif step == "side":
        committer.remove_side_files = after(committer.remove_side_files, at_batch)
    elif step == "failed":
        committer.remove_failed = after(committer.remove_failed, at_batch)
    elif step == "commit":
        committer.Committer.commit = after(committer.Committer.commit, at_batch)  # type: ignore[method-assign]
    elif step == "registry":
        Registry.record_batch = after(Registry.record_batch, at_batch)  # type: ignore[method-assign]
    else:
        raise SystemExit(f"unknown step {step}")
    assert driver is not None


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.argv = ["tidemill", *sys.argv[3:]]
    main()

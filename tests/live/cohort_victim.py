"""A driver in a process of its own that dies (kill -9) at a step of catching instances up."""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from tidemill.project import load
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runtime.driving.children import Children
from tidemill.runtime.driving.cohortwatch import CohortWatch
from tidemill.runtime.driving.committer import Committer


def _is_union(cohorts: Any, outcome: Any) -> bool:
    del cohorts
    return outcome.batch is not None


def _is_first(committer: Any, batch: Any, *_: Any) -> bool:
    """Whether the batch begins with a child's state."""
    return Cohorts(committer.folder.path).union(batch.stamp.batch) is not None


def _always(*_: Any, **__: Any) -> bool:
    return True


PLACES: dict[str, tuple[Any, str, bool, Callable[..., bool]]] = {
    "a cohort is decided": (Cohorts, "gather", True, _always),
    "its child is started": (Children, "_start", True, _always),
    "a meeting is set": (Cohorts, "meet", True, _always),
    "both are there": (Cohorts, "conclude", False, _is_union),
    "the outcome is decided": (Cohorts, "conclude", True, _is_union),
    "the union is written": (Cohorts, "unite", True, _always),
    "the instances have joined": (CohortWatch, "_join", True, _always),
    "the first batch has run": (Committer, "_commit_all", False, _is_first),
    "its output is committed": (Committer, "_commit_outputs", True, _is_first),
}
"""Where it dies: before or after (True) a method is called, if it is meant."""


def lay(place: str) -> None:
    """Die there."""
    owner, name, is_after, is_meant = PLACES[place]
    method = getattr(owner, name)

    @wraps(method)
    def trapped(*args: Any, **kwargs: Any) -> Any:
        is_due = is_meant(*args, **kwargs)
        result = method(*args, **kwargs) if is_after or not is_due else None
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, trapped)


if __name__ == "__main__":
    _, config, run, place = sys.argv
    if place:
        lay(place)
    load(config).resume(run)

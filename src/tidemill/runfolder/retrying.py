"""A commit that is tried again: what `status` is told of it, and when it is left.

The note stands in the run's folder while a place does not answer, and goes with the commit. It is
never a decision: a driver that dies leaves it, and the next one's first commit removes it.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from tidemill.errors import RunError
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RETRY
from tidemill.storage.location import Location, Place


class BrokenOffError(RunError):
    """A commit was left because the run was told to end: its batch counts as never begun.

    It may have landed all the same; the stamp in the table says so to the driver that goes on.
    """


@dataclass(frozen=True)
class Retry:
    """A commit that is being tried again."""

    place: str
    since: int  # µs: the first attempt that failed
    why: str


def note_retry(run: Place, place: str, why: str) -> None:
    """Say that a commit is tried again; leave it if the run was told to end. Driver."""
    known, control = read_retry(run), read_control(run)
    since = known.since if known and known.place == place else time.time_ns() // 1_000
    (Location.of(run) / RETRY).write_json(asdict(Retry(place, since, why)))
    if control.stopping or control.cancelled:
        raise broken_off(run)


def broken_off(run: Place) -> BrokenOffError:
    """The error of a commit that is left."""
    known = read_retry(run)
    return BrokenOffError(
        "the commit was broken off, because the run was told to end"
        + ("" if known is None else f" while {known.place} did not answer: {known.why}"),
        fix="'tidemill resume' runs the batch again, with the same rows",
    )


def clear_retry(run: Place) -> None:
    """The commit is done."""
    (Location.of(run) / RETRY).remove()


def read_retry(run: Place) -> Retry | None:
    """What :func:`note_retry` last said, if that commit is not done."""
    try:
        return Retry(**((Location.of(run) / RETRY).read_json() or {}))
    except (ValueError, TypeError):
        return None

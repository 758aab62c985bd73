"""Whether an upgraded run goes on itself, or the run that upgrades it: one decision, made once.

It is a file in the folder of the run that is upgraded, one for every attempt. The new run's driver
makes it before it commits what the old run has not given; who starts the old run again makes it
before that run reads anything. Each holds the lease of the run that it starts, and who is second
finds the decision of the first.
"""

from __future__ import annotations

from enum import StrEnum

from tidemill.errors import RunError
from tidemill.runfolder.folder import SUCCESSION, RunFolder
from tidemill.storage.location import Location


class Decision(StrEnum):
    """How an upgrade ended."""

    TAKEN = "taken"  # the new run goes on, and the old one never again
    GIVEN_UP = "given up"  # the old run goes on, and the new one never


def decide(old: RunFolder, successor: str, wanted: Decision) -> Decision:
    """Write a decision down; returns the one that holds, which may be an earlier one."""
    if not old.has_manifest():
        raise RunError(
            f"the run {old.path.name}, which is upgraded, has lost its folder: nobody can tell "
            "whether it goes on itself",
            where=str(old.path),
            fix=f"restore it from a copy; or 'tidemill cancel {successor}'",
        )
    _place(old, successor).write_first(wanted)
    found = decided(old, successor)
    assert found is not None
    return found


def decided(old: RunFolder, successor: str) -> Decision | None:
    """The decision, if it was made."""
    try:
        return Decision(_place(old, successor).read_text())
    except FileNotFoundError:
        return None


def taken_by(old: RunFolder) -> str | None:
    """The run that goes on instead of this one, if one has taken over."""
    before, _, after = SUCCESSION.partition("{run}")
    names = [name for name in old.files.names() if name.startswith(before) and name.endswith(after)]
    runs = [name[len(before) : -len(after)] for name in names]
    return next((run for run in runs if decided(old, run) is Decision.TAKEN), None)


def _place(old: RunFolder, successor: str) -> Location:
    return old.files / SUCCESSION.format(run=successor)

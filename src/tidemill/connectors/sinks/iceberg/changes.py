"""What was published into a table and reverted, as the table keeps it: a property for each run.

The property is set in the commit that replaces the rows, so it is also what tells a repeated call
that its work is done. It stays when snapshots expire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemill.connectors.sinks.replacing import Action, Change
from tidemill.jsonvalue import load_json

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_PREFIX = "tidemill.publish."
_KEPT = 20
"""Changes of one run: publishing and reverting it in turns must not let the metadata grow."""


def read_changes(properties: Mapping[str, str], run: str | None = None) -> list[Change]:
    """The changes of one run, or of all, the oldest first."""
    keys = [f"{_PREFIX}{run}"] if run is not None else sorted(properties)
    # a run's own stand in the order in which they were made, whatever the clocks said
    found = [
        load_json(Change, json.dumps(each))
        for key in keys
        if key.startswith(_PREFIX) and key in properties
        for each in json.loads(properties[key])
    ]
    return found if run is not None else sorted(found, key=lambda change: change.at)


def standing_changes(metadata: TableMetadata, run: str | None = None) -> list[Change]:
    """The changes that nobody has rolled back, the oldest first."""
    known = read_changes(metadata.properties, run)
    return [change for change in known if not is_rolled_back(metadata, change)]


def is_rolled_back(metadata: TableMetadata, change: Change) -> bool:
    """Whether somebody has set the table back to a state before the change.

    Properties are not set back with it, so the change is still written there. The table's history
    is followed down to where it is older than the change. Where it ends before, because snapshots
    are expired, the log of states tells. If the change's own snapshot is expired, this is not
    known: False then.
    """
    made = None if change.after is None else metadata.snapshot_by_id(change.after)
    at = metadata.current_snapshot()
    while made is not None and at is not None and at.snapshot_id != made.snapshot_id:
        if (at.sequence_number or 0) < (made.sequence_number or 0):
            return True
        parent = at.parent_snapshot_id
        at = None if parent is None else metadata.snapshot_by_id(parent)
    return made is not None and at is None and _was_left(metadata, made)


def _was_left(metadata: TableMetadata, made: Snapshot) -> bool:
    """Whether an older snapshot became the current one after this one was it for the last time.

    An older one has a smaller number, or was current before: format version 1 has no numbers.
    """
    log = [each.snapshot_id for each in metadata.snapshot_log]
    if made.snapshot_id not in log:
        return False
    known = log[: log.index(made.snapshot_id)]
    older = {
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id in known or (each.sequence_number or 0) < (made.sequence_number or 0)
    }
    after = log[len(log) - log[::-1].index(made.snapshot_id) :]
    return any(each in older for each in after)


def published_in(metadata: TableMetadata) -> dict[str, tuple[int, int]]:
    """The ranges (µs) that runs have published and that were not put back, the latest at the end.

    A publish that was followed by one over the same range is named too: the later one counts.
    """
    found: dict[str, tuple[int, int]] = {}
    for change in standing_changes(metadata):
        found.pop(change.run, None)
        if change.action is Action.PUBLISH:
            found[change.run] = change.span
    return found


def replaced_by(metadata: TableMetadata, change: Change) -> str | None:
    """The run that was published last over a part of the change's range, after it."""
    published = published_in(metadata)
    later = list(published)[list(published).index(change.run) + 1 :] if published else []
    low, high = change.span
    over = [run for run in later if published[run][0] < high and low < published[run][1]]
    return over[-1] if over else None


def with_change(metadata: TableMetadata, change: Change) -> dict[str, str]:
    """The property of the change's run with this change added."""
    told = [*read_changes(metadata.properties, change.run), change][-_KEPT:]
    return {f"{_PREFIX}{change.run}": json.dumps([asdict(each) for each in told], sort_keys=True)}


def tag_before(run: str) -> str:
    """The tag of the state that a run's publish has replaced: `revert` puts it back."""
    return f"tidemill-before-{run}"


def tag_published(run: str) -> str:
    """The tag of the state that a run's publish has made: what came later is told apart by it."""
    return f"tidemill-published-{run}"


def tag_compared(run: str) -> str:
    """The tag of the state that a run was compared with."""
    return f"tidemill-compared-{run}"


def tags_of(run: str) -> tuple[str, ...]:
    """All tags that the review of a run sets on a table."""
    return tag_before(run), tag_published(run), tag_compared(run)

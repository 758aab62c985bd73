"""What batches a rewound run must repeat: their ends and watermarks, as the offset log had them.

A batch that was committed before must hold the same rows when it runs again, or what it gave would
be lost or doubled. So until the journal is used up, it and not the plan says where a batch ends. A
batch without rows is in it too: all sources say that nothing is new, and Spark makes it again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tidemill.runfolder.folder import CHECKPOINT, JOURNAL
from tidemill.runfolder.offset_log import last_batch
from tidemill.storage.location import Location, Place


@dataclass(frozen=True)
class Repeat:
    """A batch that will run again."""

    ends: dict[str, int]  # the frontier of each source
    watermark: int | None  # Spark's, ms; None: the batch had none


def write_journal(folder: Place, repeats: dict[int, Repeat]) -> None:
    """Keep what batches were that will run again. Driver, at rewind."""
    value = {str(batch): asdict(found) for batch, found in sorted(repeats.items())}
    (Location.of(folder) / JOURNAL).write_json(value)


def read_repeats(folder: Place) -> dict[int, Repeat]:
    """The batches to repeat; empty for a run that was never rewound."""
    value = (Location.of(folder) / JOURNAL).read_json() or {}
    return {int(batch): Repeat(**found) for batch, found in value.items()}


def read_journal(folder: Place) -> dict[int, dict[str, int]]:
    """The ends to repeat, by batch and source."""
    return {batch: found.ends for batch, found in read_repeats(folder).items()}


def repeated_end(folder: Place, source: str) -> int | None:
    """Where the batch that is about to be made ended when it first ran, if it did.

    The batch is the one after the last in the offset log: Spark asks for its end before it writes
    the entry.
    """
    journal = read_journal(folder)
    if not journal:
        return None
    return journal.get(last_batch(Location.of(folder) / CHECKPOINT) + 1, {}).get(source)

"""What batches a rewound run must repeat: their ends, as the offset log had them.

A batch that was committed before must hold the same rows when it runs again, or what it gave would
be lost or doubled. So until the journal is used up, it and not the plan says where a batch ends.
"""

from __future__ import annotations

import json
from pathlib import Path

_NAME = "journal.json"


def write_journal(folder: Path, ends: dict[int, dict[str, int]]) -> None:
    """Keep the ends of batches that will run again, by batch and source. Driver, at rewind."""
    draft = folder / f"{_NAME}.tmp"
    draft.write_text(
        json.dumps({str(batch): found for batch, found in sorted(ends.items())}), "utf-8"
    )
    draft.replace(folder / _NAME)


def read_journal(folder: Path) -> dict[int, dict[str, int]]:
    """The ends to repeat; empty for a run that was never rewound."""
    try:
        value = json.loads((folder / _NAME).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return {int(batch): found for batch, found in value.items()}


def repeated_end(folder: Path, source: str) -> int | None:
    """Where the batch that is about to be made ended when it first ran, if it did.

    The batch is the one after the last in the offset log: Spark asks for its end before it writes
    the entry.
    """
    journal = read_journal(folder)
    if not journal:
        return None
    last = max(
        (int(path.name) for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")), default=-1
    )
    return journal.get(last + 1, {}).get(source)

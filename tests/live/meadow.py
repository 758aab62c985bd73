"""A project that goes live without a log: a table is its archive, and its growing end the log."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.testing import MemoryLog, make_project
from tidemill.testing.projects import Code, MemoryProject

LATENESS = timedelta(seconds=3)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("key", pa.int64()), ("n", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)]
)


class Meadow:
    """One table ``logs.plays`` with minutes of history, to which rows of now can be added."""

    def __init__(self, folder: Path, code: Code, seed: int, **options: Any) -> None:
        self._dice, self._numbers = random.Random(seed), count()
        self.born = datetime.now(UTC).replace(microsecond=0)
        history = [self._row(self.born - timedelta(seconds=at)) for at in range(600, 0, -1)]
        log = MemoryLog(pa.Table.from_pylist(history, SCHEMA), lateness=LATENESS)
        self.project: MemoryProject = make_project(
            folder, code, {"plays": log}, trigger="200 ms", **options
        )

    def _row(self, ingest: datetime) -> dict[str, Any]:
        """A row with this ingest time; some are late."""
        delay = self._dice.choice([0.0, 0.1, 0.5, 1.0, 2.0, 2.9, 6.0])
        return {
            "key": self._dice.randrange(7),
            "n": next(self._numbers),
            "event_ts": ingest - timedelta(seconds=delay),
            "ingest_ts": ingest,
        }

    def grow(self, rows: int) -> datetime:
        """Append rows of now; returns the time after which no more of them come."""
        now = datetime.now(UTC)
        found = [self._row(now) for _ in range(rows)]
        catalog = open_catalog(self.project.loaded)
        catalog.load_table("logs.plays").append(pa.Table.from_pylist(found, SCHEMA))
        return now + timedelta(milliseconds=1)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows; no file of it may be there twice."""
        table = find_table(open_catalog(self.project.loaded), name)
        if table is None:  # one of late or dead rows is made with its first row
            return []
        files = [task.file.file_path for task in table.scan().plan_files()]
        assert len(files) == len(set(files)), f"{name} refers to a file twice"
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return found


def since(rows: list[dict[str, Any]], time: str, start: datetime) -> list[dict[str, Any]]:
    """The rows with a time at or after the start."""
    return [row for row in rows if row[time] >= start]

"""A project that goes live without a log: a table is its archive, and its growing end the log."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.project import Project, load

LATENESS = timedelta(seconds=1)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("key", pa.int64()), ("n", pa.int64()), ("event_ts", TIME), ("ingest_ts", TIME)]
)


class Meadow:
    """One table ``logs.plays`` with minutes of history, to which rows of now can be added."""

    def __init__(self, folder: Path, code: str, seed: int, *, time: str) -> None:
        self.folder, self._dice, self._numbers = folder, random.Random(seed), count()
        self.born = datetime.now(UTC).replace(microsecond=0)
        folder.mkdir(parents=True, exist_ok=True)
        self.sinks = {"output": {"table": "marts.output", "time": time}}
        self.write(code)
        rows = [self._row(self.born - timedelta(seconds=at)) for at in range(600, 0, -1)]
        catalog = open_catalog(self.project.loaded)
        table = ensure_table(catalog, "logs.plays", SCHEMA, None, "none")
        table.append(pa.Table.from_pylist(rows, SCHEMA))

    def write(self, code: str, **options: Any) -> None:
        """The pipeline's code from now on, and options of its section."""
        (self.folder / "pipelines.py").write_text(code, "utf-8")
        archive = {"type": "iceberg", "table": "logs.plays", "ingest_time": "ingest_ts"}
        config = {
            "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": False}},
            "streams": {"plays": {
                "event_time": "event_ts", "lateness": "1 s", "skew": "1 s", "archive": archive,
            }},
            "pipelines": {"pipeline": {
                "entry": "pipelines:pipeline", "trigger": "200 ms", "max_misalignment": "1 min",
                "sinks": self.sinks, **options,
            }},
        }  # fmt: skip
        (self.folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")

    @property
    def project(self) -> Project:
        return load(self.folder / "tidemill.yaml")

    def _row(self, ingest: datetime) -> dict[str, Any]:
        """A row with this ingest time; some are late."""
        delay = self._dice.choice([0.0, 0.1, 0.3, 0.5, 0.8, 0.95, 3.0])
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

    def log(self) -> list[dict[str, Any]]:
        """All rows that are on time."""
        rows = self.rows("logs.plays")
        return [row for row in rows if row["ingest_ts"] - row["event_ts"] <= LATENESS]

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


def counted(rows: list[dict[str, Any]], width: int, after: int, until: int) -> list[dict[str, Any]]:
    """Windows of so many seconds by definition, with an end (s since 1970) in ``(after, until]``.

    That is what a run gives that had a watermark of ``after`` before, and has one of ``until`` now.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        start = int(row["event_ts"].timestamp() // width) * width
        found.setdefault((row["key"], start), []).append(row["n"])
    return [
        {"key": key, "window_start": datetime.fromtimestamp(start, UTC), "n": len(numbers),
         "sum": sum(numbers)}
        for (key, start), numbers in found.items()
        if after < start + width <= until
    ]  # fmt: skip

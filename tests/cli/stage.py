"""Runs put together by hand, through the helpers that real ones use: tables, registry, state."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa

from tests.bad_input.terminal import Outcome, run_cli
from tests.manifests import make_manifest, make_pin
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.folds.frames import to_arrow, to_polars
from tidemill.folds.state import Label, StateFiles
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.manifest import Manifest
from tidemill.project import Project
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import BatchRecord
from tidemill.testing import MemoryLog, make_project
from tidemill.types import micros_of, to_micros

T0 = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
LATENESS = timedelta(minutes=10)
OUTPUT = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("at", "timestamp"), ("key", "long"), ("word", "string"))
        ],
    }
)
"""The columns of a run's output, as Spark writes them."""
OUTPUT_SCHEMA = pa.schema([("at", TIME), ("key", pa.int64()), ("word", pa.string())])
_ROWS = pa.table({"key": pa.array([1]), "event_ts": pa.array([T0], TIME), "ingest_ts": [T0]})


def late_row(
    minutes: float, source: str = "plays", reason: str = "late", **more: Any
) -> dict[str, Any]:
    """A row of the late table whose delay is so many minutes."""
    return {
        "source": source,
        "reason": reason,
        "partition": 0,
        "offset": round(minutes),
        "ingest_time": T0,
        "event_time": T0 - timedelta(minutes=minutes),
        "row": f'{{"minutes": {minutes}}}',
        **more,
    }


@dataclass(frozen=True)
class Stage:
    """A project without Spark whose runs are written here."""

    project: Project

    @classmethod
    def make(cls, folder: Path) -> "Stage":
        log = MemoryLog(_ROWS, lateness=LATENESS)
        return cls(make_project(folder, lambda plays: plays, {"plays": log}))

    def run(
        self,
        name: str,
        late: list[dict[str, Any]] | None = (),  # type: ignore[assignment]
        *,
        on_time: int = 0,
        dead: int = 0,
        sources: tuple[str, ...] = ("plays",),
        into: str | None = None,
        folds: tuple[str, ...] = (),
        buckets: int = 2,
    ) -> RunFolder:
        """A run with these rows in its late table; None: it has not begun, and has no table."""
        table = into or f"marts.output__{name}"
        pin = make_pin("plays", None, "event_ts", "ingest_ts", lateness=micros_of(LATENESS))
        manifest = make_manifest(
            run=name,
            pipeline="pipeline",
            created=to_micros(T0),
            output=(0, 1),
            boundaries=(0, 1),
            sources=dict.fromkeys(sources, pin),
            sinks={"output": table_pin(table, OUTPUT, "at", ("key",))},
            late_table=f"{table}__late",
            dead_table=f"{table}__dead",
            shuffles=buckets,
            folds={name: FoldPin() for name in folds},
            buckets=buckets,
        )
        folder = RunFolder.of(self.project.loaded.home, name)
        folder.write_manifest(manifest)
        self.project.registry.add(name, "pipeline", "backfill")
        if late is not None:
            self._commit(manifest, list(late), on_time, dead)
        return folder

    def _commit(
        self, manifest: Manifest, late: list[dict[str, Any]], on_time: int, dead: int
    ) -> None:
        catalog, name = open_catalog(self.project.loaded), manifest.outputs.late_table
        table = ensure_table(catalog, name, SIDE_SCHEMA, None, "none")
        for batch in range(2):  # two files: a report sees them all
            rows = pa.Table.from_pylist(late[batch::2], schema=SIDE_SCHEMA)
            files = write_files(table.metadata, table.io, rows) if len(rows) else []
            commit_files(catalog, name, BatchStamp(manifest.run, batch, {}, 0), files)
        record = BatchRecord(0, 1, 0, on_time, len(late), dead, 0, 0, 0.0)
        self.project.registry.record_batch(manifest.run, record)

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Put rows into a table, one file for each half of them."""
        catalog = open_catalog(self.project.loaded)
        table = ensure_table(catalog, name, OUTPUT_SCHEMA, None, "none")
        for batch in range(2):
            made = pa.Table.from_pylist(rows[batch::2], schema=OUTPUT_SCHEMA)
            files = write_files(table.metadata, table.io, made)
            commit_files(catalog, name, BatchStamp("writer", batch, {}, 0), files)

    def cli(self, *arguments: object) -> Outcome:
        """A command in the project's folder."""
        return run_cli(*arguments, cwd=self.project.loaded.path.parent)


def keep(
    folder: RunFolder,
    batch: int,
    rows: list[dict[str, Any]],
    schema: pa.Schema,
    *,
    operator: str = "sessions",
    keys: tuple[str, ...] = ("key",),
    watermark: datetime = T0,
    buckets: tuple[int, ...] = (0, 1),
) -> None:
    """Write a version of an operator's state, dealt to two buckets; maybe not all of them."""
    files = StateFiles(folder.state)
    for bucket in buckets:
        own = [
            row for row in rows if crc32(repr([row[key] for key in keys]).encode()) % 2 == bucket
        ]
        label = Label(
            operator, "sessions", batch, bucket, 2, to_micros(watermark), keys, "session_start"
        )
        table = to_polars(pa.Table.from_pylist(own, schema=schema))
        files.write(label, to_arrow(table, schema))

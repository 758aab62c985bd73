"""A table with a shadow beside it, and all that is asked of them after rows were replaced."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, Known, commit_files
from tidemill.connectors.sinks.iceberg.dropping import named_files
from tidemill.connectors.sinks.iceberg.production import IcebergProduction
from tidemill.connectors.sinks.iceberg.snapshot_expiry import Wastebook
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.replacing import Replacement
from tidemill.connectors.sinks.writing import write_files

RUN = "20260101_120000_ab12"
NAME = "marts.shows"
SHADOW = f"{NAME}__{RUN}"
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("word", pa.string())])
HOUR = 3_600_000_000
T0 = 1_767_225_600_000_000  # 2026-01-01T00:00Z
SPAN = (T0 + 10 * HOUR, T0 + 20 * HOUR)
Row = tuple[int, float | None, str]
"""Its id, its time in hours after T0, and a word."""


def to_table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    ids, hours, words = zip(*rows, strict=True) if rows else ((), (), ())
    times = [None if hour is None else T0 + round(hour * HOUR) for hour in hours]
    columns = {
        "id": pa.array(ids, pa.int64()),
        "at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "word": pa.array(words, pa.string()),
    }
    return pa.table({name: columns[name] for name in schema.names}, schema)


@dataclass
class RangeYard:
    """A catalog in a folder."""

    folder: Path
    catalog: Catalog
    partition_by: str = "none"
    batches: Counter[str] = field(default_factory=Counter)

    @classmethod
    def make(cls, folder: Path, partition_by: str = "none") -> "RangeYard":
        made = cls(folder, open_local(folder), partition_by)
        for name in (NAME, SHADOW):
            ensure_table(made.catalog, name, SCHEMA, "at", partition_by)
        return made

    @property
    def production(self) -> IcebergProduction:
        return IcebergProduction(self.catalog, NAME, SHADOW, "at", waste=self.waste)

    def waste(self, run: str) -> Wastebook:
        return Wastebook(self.folder / "waste" / NAME, run)

    def asked(self, **changes: Any) -> Replacement:
        journal = self.folder / "journal.txt"
        return replace(Replacement(RUN, "output", SPAN, "me@here", journal=journal), **changes)

    def put(self, name: str, *files: list[Row], run: str = "live") -> None:
        """Commit files as a run does; each list is one file, or one for each partition."""
        table = self.catalog.load_table(name)
        made = [
            each for rows in files for each in write_files(table.metadata, table.io, to_table(rows))
        ]
        self.batches[run] += 1
        batch = self.batches[run]
        stamp = BatchStamp(run, batch, {"p": batch}, 0)
        known = Known(waste=self.waste(run))
        assert commit_files(self.catalog, name, stamp, made, known=known)

    def rows(self, name: str = NAME, snapshot: int | None = None) -> list[Row]:
        found = self.catalog.load_table(name).scan(snapshot_id=snapshot).to_arrow()
        times = found.column("at").cast(pa.int64()).to_pylist()
        hours = [None if at is None else (at - T0) / HOUR for at in times]
        ids, words = found.column("id").to_pylist(), found.column("word").to_pylist()
        return sorted(zip(ids, hours, words, strict=True), key=repr)

    def snapshot(self, name: str = NAME) -> int | None:
        return self.catalog.load_table(name).metadata.current_snapshot_id

    def paths(self, name: str = NAME) -> list[str]:
        """The files of the current rows; one that is referred to twice stands there twice."""
        return sorted(self.catalog.load_table(name).inspect.data_files()["file_path"].to_pylist())

    def require_sound(self) -> None:
        """No file is referred to twice, and none that any snapshot refers to is gone."""
        for name in (NAME, SHADOW):
            if not self.catalog.table_exists(name):
                continue
            paths = self.paths(name)
            assert len(paths) == len(set(paths)), "a file is referred to twice"
            named = named_files(self.catalog.load_table(name))
            gone = [path for path in named if not Path(path.removeprefix("file://")).exists()]
            assert not gone, f"{len(gone)} files are gone"

    def orphans(self) -> list[str]:
        """Data files that no snapshot of either table names."""
        named = {
            path.removeprefix("file://")
            for name in (NAME, SHADOW)
            if self.catalog.table_exists(name)
            for path in named_files(self.catalog.load_table(name))
        }
        return sorted(str(p) for p in self.folder.rglob("*.parquet") if str(p) not in named)


def inside(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] is not None and 10 <= row[1] < 20]


def outside(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row[1] is None or not 10 <= row[1] < 20]

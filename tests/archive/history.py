"""Archives as `archive run` leaves them: hours, regions, positions, and what the summaries say."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import HourTransform, IdentityTransform

from tests.connectors.archives.archives import HOUR, MINUTE, START, open_local
from tidemill.archive import missing_offsets as markers
from tidemill.archive.maintenance import Compacted, compact
from tidemill.archive.progress import ArchiveProgress, read_progress, to_summary
from tidemill.connectors.archives.iceberg import IcebergArchive
from tidemill.connectors.sinks.iceberg.tables import PROPERTIES
from tidemill.connectors.sinks.writing import write_files

Action = Callable[..., Any]
NAME = "archive.plays"
ARCHIVE = IcebergArchive(
    type="iceberg",
    table=NAME,
    ingest_time="ingest",
    partition="part",
    offset="off",
    region="country",
)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("country", pa.string()),
        ("ingest", TIME),
        ("part", pa.int32()),
        ("off", pa.int64()),
        ("_raw", pa.binary()),
        ("_reason", pa.string()),
    ]
)


@dataclass(frozen=True, order=True)
class Record:
    """One record of the log."""

    partition: int | None
    offset: int | None
    ingest: int | None


def make_log(
    count: int, *, partitions: int = 3, hours: float = 3, seed: int = 0
) -> list[list[Record]]:
    """Records by partition: offsets from anywhere, ingest times that rise, with ties."""
    chance = random.Random(seed)
    log = []
    for partition in range(partitions):
        width = int(hours * HOUR)
        times = sorted(START + chance.randrange(width) // 1_000 * 1_000 for _ in range(count))
        first = chance.randrange(1_000)
        log.append([Record(partition, first + n, at) for n, at in enumerate(times)])
    return log


def as_table(records: Sequence[Record]) -> pa.Table:
    rows = [
        {
            "id": (record.offset or 0) * 10 + (record.partition or 0),
            "country": ("DE", "FR", None)[(record.offset or 0) % 3],
            "ingest": record.ingest,
            "part": record.partition,
            "off": record.offset,
            "_raw": b"broken" if (record.offset or 0) % 7 == 0 else None,
            "_reason": "not JSON" if (record.offset or 0) % 7 == 0 else None,
        }
        for record in records
    ]
    plain = pa.schema([f if f.name != "ingest" else pa.field("ingest", pa.int64()) for f in SCHEMA])
    return pa.Table.from_pylist(rows, plain).cast(SCHEMA)


class History:
    """An archive in a folder, written commit by commit."""

    def __init__(self, folder: Path, catalog: Catalog | None = None) -> None:
        """One that is there already, opened anew: another writer of the same table."""
        self.folder = folder
        self.catalog = catalog or open_local(folder)

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        hours: bool = True,
        regions: bool = True,
        catalog: Catalog | None = None,
    ) -> "History":
        found = cls(folder, catalog)
        found.catalog.create_namespace_if_not_exists("archive")
        made = found.catalog.create_table(NAME, schema=SCHEMA, properties=PROPERTIES)
        with made.update_spec() as update:
            if hours:
                update.add_field("ingest", HourTransform(), "ingest_hour")
            if regions:
                update.add_field("country", IdentityTransform(), "country")
        return found

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def append(
        self,
        records: Sequence[Record],
        *,
        gaps: Mapping[int, Sequence[Sequence[int]]] | None = None,
        reached: Mapping[int, ArchiveProgress] | None = None,
        frontier: int | None = None,
        run: str = "a1",
        silent: bool = False,
        to_table: bool = False,
    ) -> int:
        """One commit of the archive run; how far it came is what the records show.

        ``to_table``: gaps are told to the table in the same commit, not to the snapshot.
        """
        table = self.table
        files = []
        for partition in sorted({record.partition or 0 for record in records}):
            own = [r for r in records if (r.partition or 0) == partition]
            own.sort(key=lambda r: (r.ingest or 0, r.offset or 0))
            files += write_files(table.metadata, table.io, as_table(own))
        known = {**read_progress(table.metadata), **_reached(records, gaps or {}, frontier)}
        if frontier is not None:
            known = {n: ArchiveProgress(r.next, frontier, r.ingest) for n, r in known.items()}
        summary = {"tidemill.run": run, **to_summary({**known, **(reached or {})})}
        transaction = table.transaction()
        if gaps and to_table:
            transaction.set_properties(markers.carried(table.metadata, gaps))
        elif gaps:
            summary |= markers.to_summary(gaps)
        said = {} if silent else summary
        with transaction.update_snapshot(snapshot_properties=said).merge_append() as append:
            for file in files:
                append.append_data_file(file)
        transaction.commit_transaction()
        found = self.table.metadata.current_snapshot_id
        assert found is not None
        return found

    def follow(self, log: list[list[Record]], commits: int, *, past: int = 24 * HOUR) -> "History":
        """A whole log, cut by ingest time into commits; the frontier ends far behind it."""
        last = max(record.ingest for part in log for record in part) + 1
        for n in range(commits):
            low, high = (START + (last - START) * at // commits for at in (n, n + 1))
            rows = [record for part in log for record in part if low <= record.ingest < high]
            self.append(rows, frontier=high if n < commits - 1 else last + past)
        return self

    def rows(self, snapshot: int | None = None) -> list[tuple]:
        found = self.table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
        return sorted(
            (tuple(row.values()) for row in found), key=lambda row: [str(cell) for cell in row]
        )

    def files(self) -> list[Path]:
        """What the current snapshot refers to."""
        paths = self.table.inspect.files().column("file_path").to_pylist()
        return [Path(path.removeprefix("file://")) for path in paths]

    def referenced(self) -> set[str]:
        """Data files that any snapshot names."""
        found = self.table.inspect.all_files().column("file_path").to_pylist()
        return {Path(path).name for path in found}

    def on_disk(self, kind: str = "parquet") -> set[str]:
        return {path.name for path in self.folder.rglob(f"*.{kind}")}


def _reached(
    records: Sequence[Record], gaps: Mapping[int, Sequence[Sequence[int]]], frontier: int | None
) -> dict[int, ArchiveProgress]:
    found = {}
    for partition in sorted({*gaps, *(r.partition for r in records if r.partition is not None)}):
        own = [r for r in records if r.partition == partition]
        offsets = [r.offset for r in own if r.offset is not None]
        ends = [*offsets, *(gap[1] for gap in gaps.get(partition, []))]
        times = [r.ingest for r in own if r.ingest is not None]
        newest = max(times, default=None)
        at = frontier if frontier is not None else (newest or START) + 1
        found[partition] = ArchiveProgress(max(ends, default=-1) + 1, at, newest)
    return found


LOG = make_log(40, partitions=2, hours=2)


def compacted(history: History, **options: Any) -> Compacted:
    """All closed hours, however small the files are."""
    return compact(history.catalog, ARCHIVE, **{"margin": 0, "target": 100_000_000, **options})


def interfere(monkeypatch: pytest.MonkeyPatch, catalog: Catalog, *actions: Action) -> list[Any]:
    """Wrap the catalog's commit: each action in turn gets the real commit and its arguments."""
    real, left, calls = catalog.commit_table, list(actions), []

    def commit_table(*given: Any) -> Any:
        calls.append(given)
        return left.pop(0)(real, *given) if left else real(*given)

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    return calls


def first(action: Callable[[], object]) -> Action:
    """Something happens between our look and our commit."""

    def commit(real: Any, *given: Any) -> Any:
        action()
        return real(*given)

    return commit


def raising(error: Exception, applied: bool) -> Action:
    """The commit lands or not, and the answer is an error."""

    def commit(real: Any, *given: Any) -> Any:
        if applied:
            real(*given)
        raise error

    return commit


__all__ = ["ARCHIVE", "HOUR", "MINUTE", "NAME", "START", "History", "Record", "make_log"]

"""Real archives for the tests of the readers: rows, Iceberg tables in many layouts, and the law."""

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from tests.manifests import change, make_pin
from tidemill.archive.rewriting import ReplaceFiles
from tidemill.connectors.archives.contract import ArchiveReader
from tidemill.connectors.archives.iceberg import IcebergReader
from tidemill.connectors.sinks.writing import write_files
from tidemill.connectors.tasks import deal, pieces_of
from tidemill.iceberg.extents import pin_table, pinned_metadata
from tidemill.planning.manifest import SourcePin

START = 1_767_225_600_000_000  # 2026-01-01T00:00Z
MINUTE = 60_000_000
HOUR = 60 * MINUTE


def make_rows(
    count: int, *, width: int = HOUR, zone: str | None = "UTC", seed: int = 0
) -> pa.Table:
    """A log of ``count`` rows whose ingest times rise from START, with ties, over ``width`` µs."""
    chance = random.Random(seed)
    ingest = sorted(START + chance.randrange(width) // 1_000 * 1_000 for _ in range(count))
    ingest = [at if chance.random() < 0.8 else at + 1 for at in ingest]
    event = [at - chance.randrange(HOUR) for at in ingest]
    kind = pa.timestamp("us", zone)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "ingest": pa.array(ingest, pa.int64()).cast(kind),
            "event": pa.array(event, pa.int64()).cast(kind),
            "country": pa.array(
                [chance.choice(["DE", "FR", None]) for _ in range(count)], pa.string()
            ),
            "money": pa.array([Decimal(n) / 100 for n in range(count)], pa.decimal128(12, 2)),
            "tags": pa.array([["a", None][: n % 3] for n in range(count)], pa.list_(pa.string())),
            "place": pa.array(
                [{"lat": n / 7, "name": f"p{n}"} if n % 5 else None for n in range(count)],
                pa.struct([("lat", pa.float64()), ("name", pa.string())]),
            ),
            "pairs": pa.array([[("k", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
        }
    )


def shuffled(rows: pa.Table, seed: int = 1) -> pa.Table:
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    return rows.take(pa.array(order, pa.int64()))


def open_local(folder: Path, name: str = "tidemill") -> Catalog:
    folder.mkdir(parents=True, exist_ok=True)
    catalog = load_catalog(
        name, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace_if_not_exists("archive")
    return catalog


def append_files(table: Table, parts: Sequence[pa.Table]) -> None:
    """Every part as files of its own, all in one commit."""
    files = [file for part in parts for file in write_files(table.metadata, table.io, part)]
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def rewrite_as_one(table: Table) -> None:
    """All files become one, as an engine's own compaction does it."""
    tasks = list(table.scan().plan_files())
    made = write_files(table.metadata, table.io, table.scan().to_arrow()) if tasks else []
    transaction = table.transaction()
    with ReplaceFiles(Operation.OVERWRITE, transaction, table.io) as update:
        for task in tasks:
            update.delete_data_file(task.file)
        for file in made:
            file.spec_id = table.metadata.default_spec_id
            update.append_data_file(file)
    transaction.commit_transaction()


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    """What pyiceberg cannot do: add delete files, as Flink and Spark do in merge-on-read."""

    def new_manifest_writer(self, spec) -> ManifestWriterV2:
        return _DeleteManifest(
            spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression
        )


def add_deletes(table: Table, content: DataFileContent, rows: pa.Table, ids: list[int]) -> None:
    """Commit one delete file with these rows to an unpartitioned table."""
    path = f"{table.location()}/data/deletes-{len(rows)}.parquet"
    with table.io.new_output(path).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=ids or None,
    )
    file.spec_id = 0
    transaction = table.transaction()
    with _AddDeletes(Operation.DELETE, transaction, table.io) as producer:
        producer.append_data_file(file)
    transaction.commit_transaction()


def delete_positions(table: Table, positions: dict[str, list[int]]) -> None:
    """Delete rows by file and position."""
    pairs = [(path, at) for path, found in sorted(positions.items()) for at in sorted(found)]
    columns = list(zip(*pairs, strict=True))
    rows = pa.table({"file_path": pa.array(columns[0]), "pos": pa.array(columns[1], pa.int64())})
    add_deletes(table, DataFileContent.POSITION_DELETES, rows, [])


def pin_of(table: Table, **changes: object) -> SourcePin:
    """The table as it is now, pinned."""
    pin = make_pin(
        stream="plays",
        archive=pin_table(".".join(table.name()), table.metadata),
        event_time="event",
        ingest_time="ingest",
        columns=("id",),
    )
    own = {name: changes.pop(name) for name in ("kind", "location", "snapshot") if name in changes}
    return change(pin, archive=replace(pin.archive, **own), **changes)


def reader_of(table: Table, wide: int = 5 * MINUTE, **changes: object) -> IcebergReader:
    """The reader of the table as it is now."""
    pin = pin_of(table, **changes)
    return IcebergReader(pinned_metadata(table, pin.archive), table.io, pin, wide)


def read_slices(
    reader: ArchiveReader, boundaries: Sequence[int], columns: tuple[str, ...], weight: int = 1
) -> Iterator[pa.RecordBatch]:
    """Read slice by slice as Spark does: planned on the driver, dealt to tasks, read elsewhere.

    With a ``weight`` rows count so often that pieces of files are cut, too.
    """
    extents = reader.extents(boundaries[0], boundaries[-1])
    reader.schema()
    remote: ArchiveReader = pickle.loads(pickle.dumps(reader))
    for low, high in pairwise(boundaries):
        pieces = [
            replace(piece, rows=piece.rows * weight) for piece in pieces_of(extents, low, high)
        ]
        for piece in (piece for load in deal(pieces, 3) for piece in load):
            assert low <= piece.start < piece.end <= high
            for batch in remote.read(pickle.loads(pickle.dumps(piece)), columns):
                at = batch.column("ingest").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
                assert all(piece.start <= moment < piece.end for moment in at)
                yield batch


# Where to cut: near the row of this number, before, at or after its very time.
CUTS = st.lists(st.tuples(st.integers(0, 999), st.sampled_from([-1, 0, 0, 1])), max_size=5)


def boundaries_of(rows: pa.Table, cuts: list[tuple[int, int]]) -> list[int]:
    """Boundaries around all rows, cut where :data:`CUTS` says."""
    at = rows.column("ingest").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    inner = {at[number % len(at)] + shift for number, shift in cuts} if at else set()
    return sorted({START - 1, START + HOUR + 1} | inner)


def ids_read(
    reader: ArchiveReader, boundaries: Sequence[int], columns: tuple[str, ...], weight: int = 1
) -> list[int]:
    """The ids of all rows read, sorted: twice if a row was read twice."""
    batches = read_slices(reader, boundaries, columns, weight)
    return sorted(number for batch in batches for number in batch.column("id").to_pylist())


def ids_between(rows: pa.Table, start: int, end: int) -> list[int]:
    """The oracle: the ids of the rows with ingest time in [start, end)."""
    at = rows.column("ingest").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    ids = rows.column("id").to_pylist()
    return sorted(i for i, moment in zip(ids, at, strict=True) if start <= moment < end)

"""The data files of a snapshot, and the statistics of their columns, from the manifests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidemill.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

_THREADS = 8


def data_files(table: Table) -> list[DataFile]:
    """The live data files of the current snapshot; row-level deletes are not among them."""
    data, _ = _manifests(table)
    return [entry.data_file for entry in read_entries(table.io, data)]


def _manifests(table: Table) -> tuple[list[ManifestFile], list[ManifestFile]]:
    """The manifests of the current snapshot: of data files, and of row-level deletes."""
    from pyiceberg.manifest import ManifestContent

    snapshot = table.metadata.current_snapshot()
    found = snapshot.manifests(table.io) if snapshot else []
    data = [each for each in found if each.content == ManifestContent.DATA]
    return data, [each for each in found if each.content == ManifestContent.DELETES]


def read_entries(
    io: FileIO, manifests: Iterable[ManifestFile], *, removed: bool = False
) -> list[ManifestEntry]:
    """The entries of manifests; with ``removed`` also entries of files that were removed."""
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda each: each.fetch_manifest_entry(io, not removed), manifests)
        return [entry for entries in found for entry in entries]


def write_files(
    metadata: TableMetadata, io: FileIO, rows: pa.Table, keys: Sequence[str] = ()
) -> list[DataFile]:
    """Write rows as data files, split by the table's partitions; each knows its partitioning.

    ``keys``: columns whose statistics are written in any case.
    """
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    try:
        files = list(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))
    except OverflowError:  # pyiceberg's statistics have no year 10000: such files go without
        full = {f"write.metadata.metrics.column.{key}": "full" for key in keys}
        blind = {**metadata.properties, "write.metadata.metrics.default": "counts", **full}
        metadata = metadata.model_copy(update={"properties": blind})
        files = list(_dataframe_to_data_files(table_metadata=metadata, df=rows, io=io))
    for file in files:
        file.spec_id = metadata.default_spec_id  # pyiceberg leaves it to a manifest's reader
    return files


def has_row_deletes(table: Table) -> bool:
    """Whether the current snapshot has row-level deletes, of whatever files."""
    _, deletes = _manifests(table)
    return any(each.has_added_files() or each.has_existing_files() for each in deletes)


def refuse_row_deletes(table: Table) -> None:
    """Refuse a table with row-level deletes: a rewrite of its data files would have to apply them.

    An archive keeps every row, so nobody should have deleted any.
    """
    if has_row_deletes(table):
        raise SourceError(
            "the table has row-level deletes, but an archive keeps every row",
            where=f"table {'.'.join(table.name())}",
            fix="roll the table back to the snapshot before the deletes, or apply them with "
            "the tool that wrote them (Spark: rewrite_data_files), then try again",
        )


def time_bounds(file: DataFile, field: NestedField) -> tuple[int, int] | None:
    """The oldest and newest time of a column in a file, in microseconds; None if not known."""
    bounds = number_bounds(file, field)
    scale = 1_000 if "ns" in str(field.field_type) else 1
    return None if bounds is None else (bounds[0] // scale, bounds[1] // scale)


def number_bounds(file: DataFile, field: NestedField) -> tuple[int, int] | None:
    """The smallest and largest value of a whole-number column in a file; None if not known."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import PrimitiveType

    assert isinstance(field.field_type, PrimitiveType)
    low = (file.lower_bounds or {}).get(field.field_id)
    high = (file.upper_bounds or {}).get(field.field_id)
    if low is None or high is None:
        return None
    return int(from_bytes(field.field_type, low)), int(from_bytes(field.field_type, high))


def nulls_in(file: DataFile, field: NestedField) -> int:
    """How many rows of a file have a null in a column; 0 if it is not known."""
    return int((file.null_value_counts or {}).get(field.field_id, 0))

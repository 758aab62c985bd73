"""The data files of a snapshot, and the statistics of their columns, from the manifests."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidemill.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

_THREADS = 8


def data_files(table: Table) -> list[DataFile]:
    """The live data files of the current snapshot; row-level deletes are not among them."""
    from pyiceberg.manifest import ManifestContent

    snapshot = table.metadata.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    data = [each for each in manifests if each.content == ManifestContent.DATA]
    return [entry.data_file for entry in read_entries(table.io, data)]


def read_entries(
    io: FileIO, manifests: Iterable[ManifestFile], *, removed: bool = False
) -> list[ManifestEntry]:
    """The entries of manifests; with ``removed`` also entries of files that were removed."""
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda each: each.fetch_manifest_entry(io, not removed), manifests)
        return [entry for entries in found for entry in entries]


def refuse_row_deletes(table: Table) -> None:
    """Refuse a table with row-level deletes: a rewrite of its data files would have to apply them.

    An archive keeps every row, so nobody should have deleted any.
    """
    from pyiceberg.manifest import ManifestContent

    snapshot = table.metadata.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else []:
        live = manifest.has_added_files() or manifest.has_existing_files()
        if manifest.content == ManifestContent.DELETES and live:
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

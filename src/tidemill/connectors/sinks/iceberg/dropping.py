"""Delete a table of the catalog with its files, so that a deletion that was killed can go on.

The files of rows go first, then the table's entry in the catalog, then the metadata. As long as the
entry is there the metadata tells what is left to delete. Only files below the table's own location
are deleted: others may have been added to the table and belong to somebody else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidemill.archive.expiry import delete_files
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


def drop_table(catalog: Catalog, name: str) -> None:
    """Delete the table. One that is not there, or not wholly there, is no error."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    table = None
    with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError, FileNotFoundError):
        table = catalog.load_table(name)
    if table is not None:
        _delete(table, [path for paths in _levels(table) for path in paths])
    with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
        catalog.drop_table(name)
    if table is not None:
        old = [each.metadata_file for each in table.metadata.metadata_log]
        _delete(table, [*old, table.metadata_location])
        _remove_folder(table.metadata.location, name)


def uses_files_of(table: Table, location: str) -> bool:
    """Whether the table's current snapshot names a file below another table's location."""
    below = _below(location)
    if table.metadata.location.rstrip("/") == location.rstrip("/"):
        return True
    return any(task.file.file_path.startswith(below) for task in table.scan().plan_files())


def _levels(table: Table) -> Iterator[list[str]]:
    """The files that the snapshots name: data files, manifests, manifest lists, in this order."""
    manifests: dict[str, ManifestFile] = {}
    rows: set[str] = set()
    for snapshot in table.metadata.snapshots:
        with contextlib.suppress(OSError):
            manifests |= {found.manifest_path: found for found in snapshot.manifests(table.io)}
    for manifest in manifests.values():
        with contextlib.suppress(OSError):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            rows |= {entry.data_file.file_path for entry in entries}
    yield sorted(rows)
    yield sorted(manifests)
    yield [snapshot.manifest_list for snapshot in table.metadata.snapshots]


def _delete(table: Table, paths: Iterable[str]) -> None:
    below = _below(table.metadata.location)
    delete_files(table.io, {path: 0 for path in paths if path.startswith(below)})


def _below(location: str) -> str:
    return location.rstrip("/") + "/"


def _remove_folder(location: str, name: str) -> None:
    """Remove a local table's folder with files that no commit named, if it is the table's alone."""
    path = Location(location).path
    if path is not None and path.name == name.rsplit(".", 1)[-1] and not path.is_symlink():
        Location(location).remove_folder()

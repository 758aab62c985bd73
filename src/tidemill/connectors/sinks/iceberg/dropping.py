"""Delete a table of the catalog with its files, so that a deletion that was killed can go on.

The files of rows go first, then the table's entry in the catalog, then the metadata. As long as the
entry is there the metadata tells what is left to delete. Only files below the table's own location
are deleted: others may have been added to the table and belong to somebody else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidemill.archive.expiry import delete_files
from tidemill.connectors.sinks.iceberg.changes import read_changes
from tidemill.errors import SinkError
from tidemill.iceberg.catalog import find_table
from tidemill.iceberg.data_files import data_files, read_entries
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table

_OF_A_RUN = re.compile(r"__\d{8}_\d{6}_[0-9a-f]{4}(__late|__dead)?$")


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
    """Whether a snapshot of the table names a file below another table's location."""
    below = _below(location)
    if table.metadata.location.rstrip("/") == location.rstrip("/"):
        return True
    return any(path.startswith(below) for path in named_files(table))


def find_borrowers(
    catalog: Catalog, place: str, run: str, others: Iterable[str] = ()
) -> Iterator[Table]:
    """The tables that may refer to files of the run's shadow beside a place.

    These are the place, the ``others``, and every table of the place's namespace that keeps a
    publish of the run: production may have been renamed. Raises SinkError for one of the first two
    whose metadata cannot be found: the files that it refers to are then not known.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    known = list(dict.fromkeys((place, *others)))
    for name in known:
        try:
            yield catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            continue
        except FileNotFoundError as error:
            raise SinkError(
                f"the metadata of the table {name} is gone, so which files of a shadow it refers "
                f"to is not known: {error}",
                where=f"table {name}",
                fix="restore the metadata, or drop the table from the catalog; nothing was deleted",
            ) from None
    for name in _neighbours(catalog, place):
        found = find_table(catalog, name) if name not in known else None
        if found is not None and read_changes(found.metadata.properties, run):
            yield found


def _neighbours(catalog: Catalog, place: str) -> list[str]:
    """The tables of a place's namespace, less those of runs: they refer to no files of others."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    with contextlib.suppress(NoSuchNamespaceError):
        found = (".".join(name) for name in catalog.list_tables(place.rsplit(".", 1)[0]))
        return sorted(name for name in found if _OF_A_RUN.search(name) is None)
    return []


def named_files(table: Table) -> set[str]:
    """The data files that the table's snapshots have rows of, and their row-level deletes."""
    manifests = {
        found.manifest_path: found
        for snapshot in table.metadata.snapshots
        for found in snapshot.manifests(table.io)
    }
    entries = read_entries(table.io, manifests.values())
    return {entry.data_file.file_path for entry in entries}


def drop_lent_table(catalog: Catalog, name: str, borrowers: Iterable[Table]) -> int:
    """Delete a table, but no file that another one refers to in any snapshot; returns freed bytes.

    The files that stay belong to the borrower from now on. As in :func:`drop_table` the entry in
    the catalog goes after the files of rows, so a deletion that was killed can go on.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    table = find_table(catalog, name)
    if table is None:
        with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
            catalog.drop_table(name)
        return 0
    lent = {path for found in borrowers for path in named_files(found)}
    below = _below(table.metadata.location)
    is_lent = any(path.startswith(below) for path in lent)
    if not is_lent:
        freed = sum(each.file_size_in_bytes for each in _own_files(table).values())
        drop_table(catalog, name)
        return freed
    rows, *metadata = _levels(table)
    sizes = {path: each.file_size_in_bytes for path, each in _own_files(table).items()}
    doomed = {path: sizes.get(path, 0) for path in rows if path not in lent}
    freed = sum(delete_files(table.io, _only_below(doomed, below)).values())
    _delete(table, [path for paths in metadata for path in paths])
    with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
        catalog.drop_table(name)
    old = [each.metadata_file for each in table.metadata.metadata_log]
    _delete(table, [*old, table.metadata_location])
    return freed


def _own_files(table: Table) -> dict[str, DataFile]:
    """The files of the current rows; none if a deletion was killed behind them."""
    with contextlib.suppress(OSError):
        return {file.file_path: file for file in data_files(table)}
    return {}


def _only_below(paths: dict[str, int], below: str) -> dict[str, int]:
    return {path: size for path, size in paths.items() if path.startswith(below)}


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

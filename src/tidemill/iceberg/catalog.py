"""Open the Iceberg catalog, find tables, pin snapshots for the life of a run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError, SourceError, nearest
from tidemill.iceberg.outage import with_patience

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.config.loader import LoadedConfig
    from tidemill.iceberg.local_files import PlainFiles

_TRIES = 30
NAME = "tidemill.catalog.name"
"""The property by which a catalog's name travels with its other properties to another process."""


def open_catalog(loaded: LoadedConfig) -> Catalog:
    """The project's catalog, for writing; the folders of a local catalog are created."""
    from tidemill.iceberg.local_files import DurableFiles

    return _open(loaded, DurableFiles)


def open_metadata(loaded: LoadedConfig) -> Catalog:
    """The project's catalog, for planning: it reads metadata only, and does not import Arrow."""
    from tidemill.iceberg.local_files import PlainFiles

    return _open(loaded, PlainFiles)


def _open(loaded: LoadedConfig, files: type[PlainFiles]) -> Catalog:
    from tidemill.iceberg.local_files import with_files

    for folder in loaded.config.catalog.local_folders(loaded.base):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder {folder} cannot be made: {error.strerror}",
                where="catalog",
                fix="give write permission, or set catalog.warehouse and catalog.uri elsewhere",
            ) from None
    catalog = connect(loaded.config.catalog.name, loaded.config.catalog.properties(loaded.base))
    catalog.properties = with_files(files, catalog.properties)
    return catalog


def connect(name: str, properties: dict[str, str]) -> Catalog:
    """A catalog from its pyiceberg properties."""
    from pyiceberg.catalog import load_catalog

    try:
        catalog = load_catalog(name, **properties)
        with_patience(catalog)
        return catalog
    except Exception as error:
        raise ConfigError(
            f"the catalog cannot be opened: {error}",
            where=f"catalog {properties.get('uri', name)}",
            fix="check catalog: in the YAML; 'tidemill doctor' tries it",
        ) from error


def connect_again(properties: Mapping[str, str]) -> Catalog:
    """A catalog from properties that also hold its name: of a SQL catalog it is part of the key."""
    left = {key: value for key, value in properties.items() if key != NAME}
    return connect(properties.get(NAME, "tidemill"), left)


def load_table(catalog: Catalog, name: str, where: str) -> Table:
    """A table that must exist; otherwise an error with the nearest name."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    if not all(part.strip() for part in name.split(".")) or "." not in name:
        raise SourceError(
            f"{name!r} is no name of a table",
            where=where,
            fix="a table is named with its namespace: marts.plays",
            table=name,
        )
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        elsewhere = _other_names(catalog, name)
        raise SourceError(
            f"the table {name!r} does not exist",
            where=where,
            fix=_hint(catalog, name, elsewhere),
            table=name,
            **({"catalog_names": elsewhere} if elsewhere else {}),
        ) from None
    except FileNotFoundError as error:
        raise SourceError(
            f"the metadata of the table {name!r} is gone: {error}",
            where=where,
            fix="restore the table's metadata files, or register the table again",
        ) from None


def find_table(catalog: Catalog, name: str) -> Table | None:
    """A table that may be missing, or whose metadata may be gone: None then."""
    from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError

    missing = (NoSuchTableError, NoSuchNamespaceError, NoSuchIdentifierError, FileNotFoundError)
    with contextlib.suppress(*missing):
        return catalog.load_table(name)
    return None


def list_tables(catalog: Catalog) -> list[str]:
    """The names of all tables, in all namespaces."""
    found, left = [], list(catalog.list_namespaces())
    while left:
        namespace = left.pop()
        left += [each for each in catalog.list_namespaces(namespace) if len(each) > len(namespace)]
        found += [".".join(name) for name in catalog.list_tables(namespace)]
    return sorted(set(found))


def _hint(catalog: Catalog, name: str, elsewhere: list[str]) -> str:
    """The nearest table of the namespace; if it has none, the nearest namespace."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    namespace = name.rsplit(".", 1)[0]
    if elsewhere:
        return (
            f"the same SQL catalog has it under the name {elsewhere[0]!r}: write catalog: {{name: "
            f"{elsewhere[0]}, …}}; a SQL catalog keeps the tables of each name apart, and this one "
            f"was opened as {catalog.name!r}"
        )
    known: list[str] = []
    with contextlib.suppress(NoSuchNamespaceError):
        known = [".".join(found) for found in catalog.list_tables(namespace)]
    if known:
        return nearest(name, known)
    others = {".".join(found) for found in catalog.list_namespaces()} - {namespace}
    if not others:
        return "the catalog has no tables yet: a run makes those that it writes"
    return f"{namespace!r} has no tables; {nearest(namespace, others)}"


def _other_names(catalog: Catalog, name: str) -> list[str]:
    """The other names under which a SQL catalog has a table: the name is part of its key."""
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    try:
        from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    except ImportError:
        return []
    if not isinstance(catalog, SqlCatalog):
        return []
    namespace, _, table = name.rpartition(".")
    asked = select(IcebergTables.catalog_name).where(
        IcebergTables.table_namespace == namespace, IcebergTables.table_name == table
    )
    try:
        with Session(catalog.engine) as session:
            return sorted({found for found in session.scalars(asked) if found != catalog.name})
    except SQLAlchemyError:
        return []  # only a hint


def tag_name(run: str) -> str:
    """The tag that keeps a run's snapshot from being expired."""
    return f"tidemill-{run}"


def pin_snapshot(table: Table, snapshot: int, run: str) -> None:
    """Tag a snapshot so that nobody expires it. Pinning twice changes nothing."""
    _with_retry(table, lambda: _pin(table, snapshot, tag_name(run)))


def _pin(table: Table, snapshot: int, tag: str) -> None:
    if tag in table.metadata.refs:
        return
    if table.metadata.snapshot_by_id(snapshot) is None:
        raise SourceError(
            f"the snapshot {snapshot} was expired before the run could pin it",
            where=f"table {'.'.join(table.name())}",
            fix="try again: a plan of known code takes a second; or keep snapshots for longer",
            snapshot=snapshot,
        )
    table.manage_snapshots().create_tag(snapshot, tag).commit()


def tags_of(table: Table, run: str) -> list[str]:
    """The tags that a run has set on a table."""
    tag = tag_name(run)
    return [name for name in table.metadata.refs if name == tag or name.startswith(f"{tag}-")]


def unpin_snapshot(table: Table, run: str) -> None:
    """Remove a run's tags from a table, when the run has ended."""
    _remove_tags(table, lambda name: name in tags_of(table, run))


def keep_tags(table: Table, snapshot: int, run: str, kept: int) -> None:
    """Tag one more snapshot of a table that a run follows; only its newest tags are kept."""
    prefix = f"{tag_name(run)}-"
    _with_retry(table, lambda: _pin(table, snapshot, f"{prefix}{snapshot}"))
    order = {found.snapshot_id: found.sequence_number or 0 for found in table.metadata.snapshots}
    own = [name for name in table.metadata.refs if name.startswith(prefix)]
    own.sort(key=lambda name: order.get(table.metadata.refs[name].snapshot_id, 0))
    if len(own) > kept:
        _remove_tags(table, own[:-kept].__contains__)


def set_tag(table: Table, snapshot: int, tag: str) -> None:
    """Set a tag, or move it. Nothing is done for a snapshot that is gone meanwhile."""

    def change() -> None:
        found = table.metadata.refs.get(tag)
        if table.metadata.snapshot_by_id(snapshot) is None:
            return
        if found is None or found.snapshot_id != snapshot:
            table.manage_snapshots().create_tag(snapshot, tag).commit()

    _with_retry(table, change)


def unset_tags(table: Table, tags: Collection[str]) -> None:
    """Remove tags; those that are not there are no error."""
    _remove_tags(table, tags.__contains__)


def _remove_tags(table: Table, is_old: Callable[[str], bool]) -> None:
    def remove() -> None:
        for name in filter(is_old, list(table.metadata.refs)):
            table.manage_snapshots().remove_tag(name).commit()

    _with_retry(table, remove)


def _with_retry(table: Table, change: Callable[[], None]) -> None:
    """Change tags while others write to the table: after a conflict load the table and retry."""
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    from tidemill.iceberg.transaction import attempts

    for attempt in attempts(_TRIES):
        table.refresh()
        try:
            change()
            return
        except (CommitFailedException, CommitStateUnknownException):
            if attempt == _TRIES - 1:
                raise

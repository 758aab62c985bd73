"""Keep the rows of reference tables in the run's folder, before the run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.runfolder.decided_versions import DecidedVersions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


def has_tables(manifest: Manifest, folder: RunFolder) -> bool:
    """Whether :func:`keep_tables` was done."""
    return all(DecidedVersions(folder.path, name).starts() for name in manifest.tables)


def keep_tables(manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
    """Copy the pinned rows of every table, and decide that the first batch sees them.

    A table whose pinned state is gone, or has changed since the plan, is a SourceError. From then
    on nothing that happens to a table can reach the run.
    """
    if not manifest.tables:
        return
    from tidemill.connectors.tables.contract import read_pinned

    for name, pin in manifest.tables.items():
        versions = DecidedVersions(folder.path, name)
        if not versions.starts():
            rows = read_pinned(pin, name, catalog)
            versions.decide(0, versions.keep(rows, pin, manifest.identity.created))

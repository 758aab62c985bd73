"""Keep the rows of reference tables and instances in the run's folder, before the run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.runfolder.decided_versions import DecidedVersions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


def has_tables(manifest: Manifest, folder: RunFolder) -> bool:
    """Whether :func:`keep_tables` was done."""
    own = () if manifest.instances is None else (manifest.instances.argument,)
    names = (*manifest.tables, *own)
    return all(DecidedVersions(folder.path, name).starts() for name in names)


def keep_tables(manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
    """Copy the pinned rows of every table, and decide that the first batch sees them.

    A table whose pinned state is gone, or has changed since the plan, is a SourceError. From then
    on nothing that happens to a table can reach the run.
    """
    keep_instances(manifest, folder, catalog)
    if not manifest.tables:
        return
    from tidemill.connectors.tables.contract import read_pinned

    for name, pin in manifest.tables.items():
        versions = DecidedVersions(folder.path, name)
        if not versions.starts():
            rows = read_pinned(pin, name, catalog)
            versions.decide(0, versions.keep(rows, pin, manifest.identity.created))


def keep_instances(manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
    """Keep the instances that the run begins with, and decide that the first batch sees them."""
    pin = manifest.instances
    if pin is None:
        return
    from tidemill.runtime.instances.opening import read_instances, rows_of

    versions = DecidedVersions(folder.path, pin.argument)
    if not versions.starts():
        rows = rows_of(read_instances(pin, catalog), {*pin.ids})
        versions.decide(0, versions.keep(rows, pin.table, manifest.identity.created))

"""Write a run down before it starts: manifest, registry, tags, pinned metadata; all or nothing."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from tidemill.connectors.archives.opening import archive_of, is_kept, keep_metadata
from tidemill.errors import RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState, open_registry

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest


def write_run(loaded: LoadedConfig, manifest: Manifest, follows: str | None = None) -> None:
    """Fix a run; what cannot be finished is taken back.

    The manifest comes first: a run that the registry knows can always be gone on with. The registry
    comes before the tags, so that `cancel` finds them. ``follows``: whose name it takes over.
    """
    folder = RunFolder.of(loaded.home, manifest.run)
    catalog = open_catalog(loaded)
    try:
        folder.write_manifest(manifest)
        registry = open_registry(loaded.home)
        registry.add(manifest.run, manifest.pipeline, manifest.mode, manifest.name, follows)
        _pin(manifest, folder, catalog)
    except BaseException as error:
        _take_back(loaded, manifest, folder, catalog)
        if not isinstance(error, OSError):
            raise
        raise RunError(
            f"the run cannot be written: {error.strerror or error}",
            where=str(error.filename or folder.path),
            fix="free space or give write permission, or set home: in the YAML",
        ) from None


def complete_run(loaded: LoadedConfig, manifest: Manifest, folder: RunFolder) -> None:
    """Do what is left of :func:`write_run`, if whoever wrote the run down died meanwhile."""
    if not is_kept(manifest, folder.table):
        _pin(manifest, folder, open_catalog(loaded))


def is_begun(loaded: LoadedConfig, manifest: Manifest) -> bool:
    """Whether a run that the registry knows can go on; if not, it is taken back.

    Only one that was never driven, and whose snapshot expired before it was tagged, cannot.
    """
    folder = RunFolder.of(loaded.home, manifest.run)
    if open_registry(loaded.home).get(manifest.run).state is not RunState.PLANNED:
        return True
    try:
        complete_run(loaded, manifest, folder)
    except SourceError:
        _take_back(loaded, manifest, folder, open_catalog(loaded))
        return False
    return True


def _pin(manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
    """Hold the archives, keep their metadata beside the manifest. Twice is as good as once."""
    for name, pin in manifest.sources.items():
        if pin.archive is not None:
            archive_of(pin.archive).hold(pin.archive, catalog, manifest.run)
        keep_metadata(pin, catalog, folder.table(name))


def _take_back(
    loaded: LoadedConfig, manifest: Manifest, folder: RunFolder, catalog: Catalog
) -> None:
    """Remove what is there of a run that could not be written; what fails here stays."""
    from tidemill.runtime.driving.executor import release

    with contextlib.suppress(Exception):
        release(catalog, manifest)
    with contextlib.suppress(Exception):
        open_registry(loaded.home).remove(manifest.run)
    shutil.rmtree(folder.path, ignore_errors=True)

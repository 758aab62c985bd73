"""What a commit names is on the disk before the commit: no power failure breaks a table.

Object stores keep what they have confirmed. A local file system does not: it confirms a write and
keeps it in memory for half a minute. The catalog's own database does sync, so that after a power
failure it would name metadata that is gone. Files that are written through ``DurableFiles`` are
synced when they are closed, with the folders that name them.
"""

from __future__ import annotations

import os
from io import BufferedWriter
from io import FileIO as RawFile
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io import PY_IO_IMPL, InputFile, OutputFile, OutputStream

from tidemill.iceberg.local_files import LocalFile, PlainFile, PlainFiles
from tidemill.storage.disk import sync

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties


class _SyncedStream(BufferedWriter):
    """A file that is on the disk once it is closed."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(RawFile(path, mode))
        self._folder = path.parent

    def close(self) -> None:
        """Sync what was written, then the folder that has the file's name."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(self._folder)


class DurableFile(LocalFile, OutputFile):
    """A file on this machine, to be written."""

    def __init__(self, location: str, path: Path) -> None:
        """``location`` as the table's metadata names it."""
        super().__init__(location)
        self.path = path

    def to_input_file(self) -> InputFile:
        """The same file, to be read."""
        return PlainFile(self.location, self.path)

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream into it; folders that are missing are made, for good."""
        if not self.path.parent.is_dir():
            missing = [each for each in self.path.parents if not each.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                sync(folder.parent)
        return _SyncedStream(self.path, "wb" if overwrite else "xb")


class DurableFiles(PlainFiles):
    """Writes local files for good; everything else is as pyiceberg chooses."""

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return self.chosen(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        path = self._local(location)
        return (
            self.chosen(location).new_output(location)
            if path is None
            else DurableFile(location, path)
        )


def durably(properties: Properties) -> Properties:
    """The properties of a catalog whose tables are written for good; a FileIO they name stays."""
    return {PY_IO_IMPL: f"{DurableFiles.__module__}.{DurableFiles.__name__}", **properties}

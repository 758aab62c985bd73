"""A table's files on a local disk: metadata is read as plain files, and files are written for good.

*Plans* read through ``PlainFiles``. pyiceberg would read metadata through Arrow, whose import (with
its datasets and pandas) takes longer than a whole plan.

*Commits* write through ``DurableFiles``. Object stores keep what they have confirmed. A local file
system does not: it confirms a write and keeps it in memory for half a minute. The catalog's own
database does sync, so that after a power failure it would name metadata that is gone. So a file is
synced when it is closed, with the folders that name it.

Everything else is done the way pyiceberg chooses, the reading of data files above all.
"""

from __future__ import annotations

import os
from io import BufferedWriter
from io import FileIO as RawFile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlparse

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, OutputStream, load_file_io

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


class LocalFile(InputFile, OutputFile):
    """A file on this machine; ``location`` is the name that the table's metadata gives it."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self.path = path

    def __len__(self) -> int:
        return self.path.stat().st_size

    def exists(self) -> bool:
        """Whether it is there."""
        return self.path.exists()

    def open(self, seekable: bool = True) -> BinaryIO:
        """Open the file for reading from its start."""
        del seekable
        return self.path.open("rb")

    def to_input_file(self) -> InputFile:
        """The same file, to be read."""
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream into it; folders that are missing are made, for good."""
        if not self.path.parent.is_dir():
            missing = [each for each in self.path.parents if not each.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for folder in missing:
                sync(folder.parent)
        return _SyncedStream(self.path, "wb" if overwrite else "xb")


class PlainFiles(FileIO):
    """Reads local files as plain files; everything else is done by the FileIO pyiceberg chooses."""

    def __init__(self, properties: Properties) -> None:
        """``properties`` are the catalog's and the table's, as for any FileIO."""
        super().__init__({k: v for k, v in properties.items() if k != PY_IO_IMPL})
        self._chosen: dict[str, FileIO] = {}

    def chosen(self, location: str) -> FileIO:
        """The FileIO that pyiceberg would choose for this location; data is read with it."""
        scheme = urlparse(location).scheme
        if scheme not in self._chosen:
            self._chosen[scheme] = load_file_io(self.properties, location)
        return self._chosen[scheme]

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        local = self._local(location)
        return self.chosen(location).new_input(location) if local is None else local

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return self.chosen(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        name = location if isinstance(location, str) else location.location
        self.chosen(name).delete(name)

    def _local(self, location: str) -> LocalFile | None:
        """A local file, found as pyiceberg finds it: URIs are not unquoted."""
        uri = urlparse(location)
        if uri.scheme == "file":
            return LocalFile(location, Path(f"{uri.netloc}{uri.path}"))
        is_local = not uri.scheme and self.properties.get("DEFAULT_SCHEME", "file") == "file"
        return LocalFile(location, Path(location)) if is_local else None


class DurableFiles(PlainFiles):
    """Writes local files for good; everything else is done by the FileIO pyiceberg chooses."""

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return self.chosen(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        local = self._local(location)
        return super().new_output(location) if local is None else local


def with_files(files: type[PlainFiles], properties: Properties) -> Properties:
    """Properties with which tables are opened through ``files``; a FileIO that they name stays."""
    return {PY_IO_IMPL: f"{files.__module__}.{files.__name__}", **properties}


def for_data(io: FileIO, location: str) -> FileIO:
    """The FileIO to read data files below ``location`` with."""
    return io.chosen(location) if isinstance(io, PlainFiles) else io

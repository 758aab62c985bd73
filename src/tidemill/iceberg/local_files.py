"""Read a table's metadata on a local disk as plain files.

pyiceberg would read them through Arrow, whose import (with its datasets and pandas) takes longer
than a whole plan. Data files are still read the way pyiceberg chooses.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlparse

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties


class LocalFile:
    """The size and existence of a local file, shared by files to read and files to write."""

    path: Path

    def __len__(self) -> int:
        """Its size in bytes."""
        return self.path.stat().st_size

    def exists(self) -> bool:
        """Whether it is there."""
        return self.path.exists()


class PlainFile(LocalFile, InputFile):
    """A file on this machine, to be read."""

    def __init__(self, location: str, path: Path) -> None:
        """``location`` as the table's metadata names it."""
        super().__init__(location)
        self.path = path

    def open(self, seekable: bool = True) -> BinaryIO:
        """Open the file for reading from its start."""
        del seekable
        return self.path.open("rb")


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
        path = self._local(location)
        return PlainFile(location, path) if path else self.chosen(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return self.chosen(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        name = location if isinstance(location, str) else location.location
        self.chosen(name).delete(name)

    def _local(self, location: str) -> Path | None:
        """The path of a local file, found as pyiceberg finds it: URIs are not unquoted."""
        uri = urlparse(location)
        if uri.scheme == "file":
            return Path(f"{uri.netloc}{uri.path}")
        default = self.properties.get("DEFAULT_SCHEME", "file")
        return Path(location) if not uri.scheme and default == "file" else None


def plainly(properties: Properties) -> Properties:
    """Properties with which metadata is read as plain files; a FileIO that they name stays."""
    return {PY_IO_IMPL: f"{PlainFiles.__module__}.{PlainFiles.__name__}", **properties}


def for_data(io: FileIO, location: str) -> FileIO:
    """The FileIO to read data files below ``location`` with."""
    return io.chosen(location) if isinstance(io, PlainFiles) else io

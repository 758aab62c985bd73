"""What archives in a folder of files share, whatever the format of the files.

There are no snapshots: the run pins the list of files with size and modification time, and a
file that changed under the run is an error, not other rows. A format says in its classes which
files are its own, and how columns, times and rows of a file are found.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyarrow import fs
from pydantic import Field

from tidemill.connectors.archives.contract import Archive, ArchiveReader
from tidemill.connectors.archives.file_columns import FileColumns, missing_columns, unite
from tidemill.errors import ConfigError, SourceError
from tidemill.planning.manifest import ArchivePin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import SourcePin


_METADATA = ".metadata.json"


class FolderArchive(Archive):
    """History in the files of a folder and of its sub-folders."""

    path: str = Field(description="The folder; relative to the YAML.")

    suffixes: ClassVar[tuple[str, ...]]
    """How the names of the files end."""

    @classmethod
    def recognise(cls, place: str) -> dict[str, Any] | None:
        """A folder that has such files, unless the metadata of a table says which of them count."""
        if named_folder(place) is None:
            return None
        try:
            files = list_files(folder_uri(place, Path("/")), place, (*cls.suffixes, _METADATA))
        except SourceError:
            return None
        if any(file["path"].endswith(_METADATA) for file in files):
            raise ConfigError(
                "the folder holds the files of an Iceberg table, and some of them may be no rows",
                where=place,
                fix="name the table instead, as namespace.table, and its catalog with --catalog",
            )
        return {"path": place}

    @classmethod
    @abstractmethod
    def reader(cls, pin: SourcePin, known: pa.Schema | None) -> ArchiveReader:
        """The reader of the pinned files; ``known`` is what its `schema` told before."""

    def pin(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The list of the files that are there now."""
        location = folder_uri(self.path, base)
        files = list_files(location, where, self.suffixes)
        return ArchivePin(self.type, location, facts={"files": files})

    def examine(self, catalog: Catalog, base: Path, where: str) -> str:
        """The folder and how many files it has."""
        return f"{self.path}, {self.describe(self.pin(catalog, base, where))}"

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """How many files there are."""
        return f"{len(pin.facts['files'])} files"

    @classmethod
    def open(cls, pin: SourcePin, catalog: Catalog) -> ArchiveReader:
        """Open no file: whether one has changed is found out when it is read."""
        return cls.reader(pin, None)

    @classmethod
    def reopen(
        cls, pin: SourcePin, kept: Path, properties: dict[str, str], schema: pa.Schema
    ) -> ArchiveReader:
        """The pin says everything, so nothing is kept beside it."""
        return cls.reader(pin, schema)

    @classmethod
    def covers(cls, pin: ArchivePin, location: str) -> bool:
        """Whatever is written below the folder would be read by the next plan."""
        return is_inside(location, pin.location)


class FolderReader(ArchiveReader):
    """The pinned files of a folder. The handle of a file is its entry in the pin."""

    def __init__(self, pin: SourcePin, known: pa.Schema | None = None) -> None:
        """Open no file yet. ``known`` is what :meth:`schema` found before, on the driver."""
        self.pin = pin
        self._schema = known

    @abstractmethod
    def file_columns(self) -> list[FileColumns]:
        """The columns of every pinned file. Driver."""

    @property
    def files(self) -> list[dict[str, Any]]:
        """The pinned files: ``path`` below the folder, ``size``, ``mtime``."""
        assert self.pin.archive is not None
        found: list[dict[str, Any]] = self.pin.archive.facts["files"]
        return found

    @cached_property
    def _folder(self) -> tuple[fs.FileSystem, str]:
        return open_folder(self.pin.location)

    def find_file(self, file: dict[str, Any]) -> tuple[fs.FileSystem, str]:
        """The file system and the path of a pinned file, which must not have changed since."""
        filesystem, base = self._folder
        path = f"{base}/{file['path']}"
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise SourceError("the pinned file is gone", where=path, fix="restore it", file=path)
        if (info.size, info.mtime_ns) != (file["size"], file["mtime"]):
            raise SourceError(
                "the file changed since the run was planned",
                where=path,
                fix="restore the old file, or start a new backfill",
                file=path,
            )
        return filesystem, path

    def schema(self) -> pa.Schema:
        """The driver finds the columns once; they are kept for all other processes."""
        if self._schema is None:
            self._schema = self.find_schema()
        return self._schema

    def find_schema(self) -> pa.Schema:
        """All columns of all pinned files. Driver."""
        return unite(self.file_columns(), self.pin.location)

    def differences(self, start: int, end: int) -> dict[str, str]:
        """Columns that some of the range's files lack."""
        within = {file["path"] for file, _ in self.extents(start, end)}
        return missing_columns([file for file in self.file_columns() if file.path in within])


def open_folder(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder's URI, and the folder's path there."""
    filesystem, path = fs.FileSystem.from_uri(location)
    return filesystem, path.rstrip("/")


def named_folder(place: str) -> tuple[fs.FileSystem, str] | None:
    """The folder that an absolute path or a URI names; None if there is none."""
    if "://" not in place and not place.startswith("/"):
        return None
    try:
        filesystem, path = open_folder(folder_uri(place, Path("/")))
        is_there = filesystem.get_file_info(path).type == fs.FileType.Directory
    except (OSError, ValueError):  # a URI of a storage that Arrow does not know, or cannot ask
        return None
    return (filesystem, path) if is_there else None


def folder_uri(path: str, base: Path) -> str:
    """A folder as the YAML names it, relative to ``base``, as URI; without ``..``."""
    if "://" in path:
        return path
    return ((base / path).resolve() if ".." in Path(path).parts else base / path).as_uri()


def is_inside(location: str, folder: str) -> bool:
    """Whether a place is the folder, or lies below it; both are paths or URIs."""
    inner, outer = (
        place.removeprefix("file://").replace("//", "/").rstrip("/") + "/"
        for place in (location, folder)
    )
    return inner.startswith(outer)


def list_files(location: str, where: str, suffixes: tuple[str, ...]) -> list[dict[str, Any]]:
    """The files below the folder that end so, to be pinned, without hidden and marker files."""
    filesystem, base = open_folder(location)
    if filesystem.get_file_info(base).type != fs.FileType.Directory:
        raise SourceError(f"there is no folder {base}", where=where, fix="correct archive.path")
    infos = filesystem.get_file_info(fs.FileSelector(base, recursive=True))
    files = [
        {"path": info.path[len(base) + 1 :], "size": info.size, "mtime": info.mtime_ns}
        for info in infos
        if info.type == fs.FileType.File
        and info.path.endswith(suffixes)
        and not any(part.startswith(("_", ".")) for part in info.path[len(base) + 1 :].split("/"))
    ]
    if not files:
        raise SourceError(
            f"there is no {suffixes[0]} file below {base}", where=where, fix="correct archive.path"
        )
    return sorted(files, key=lambda file: str(file["path"]))

"""Reference tables in files: Parquet and CSV, pinned by the content of every file."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pyarrow import fs
from pydantic import Field

from tidemill.connectors.archives.folder import folder_uri, open_folder
from tidemill.connectors.tables.contract import ReferenceTable
from tidemill.connectors.tables.shaping import require_names
from tidemill.errors import ConfigError, SourceError
from tidemill.planning.manifest import ArchivePin

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog


class FileTable(ReferenceTable):
    """A table in a file, or in the files of a folder."""

    path: str = Field(description="The file, or the folder of files; relative to the YAML.")

    suffix: ClassVar[str]

    @abstractmethod
    def parse(self, content: pa.Buffer, where: str) -> pa.Table:
        """The rows of one file."""

    def fix(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """Every file with its size and a digest of its content."""
        del catalog
        location = folder_uri(self.path, base)
        filesystem, path = open_folder(location)
        files = []
        for name in _names(filesystem, path, self.suffix, where):
            content = _content(filesystem, path, name, where)
            files.append({"path": name, "size": content.size, "sha256": _digest(content)})
        size = sum(file["size"] for file in files)
        return ArchivePin(self.type, location, facts={"files": files, "bytes": size})

    def load(self, pin: ArchivePin, catalog: Catalog, where: str) -> pa.Table:
        """Read the files; one whose content is another is an error."""
        del catalog
        filesystem, path = open_folder(pin.location)
        tables = []
        for file in pin.facts["files"]:
            content = _content(filesystem, path, file["path"], where)
            if _digest(content) != file["sha256"]:
                raise SourceError(
                    "the file changed since the run was planned",
                    where=_join(path, file["path"]),
                    fix="start the run again: it takes the table as it is then",
                )
            place = f"{where}: {_join(path, file['path'])}"
            tables.append(require_names(self.parse(content, place), place))
        try:
            return pa.concat_tables(tables, promote_options="default")
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"its files do not fit together: {error}",
                where=where,
                fix="give all files the same types",
            ) from None

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """How many files there are."""
        count = len(pin.facts["files"])
        return "1 file" if count == 1 else f"{count} files"


class ParquetTable(FileTable):
    """Parquet: a file, or a folder of files."""

    type: Literal["parquet"]
    suffix = ".parquet"

    def parse(self, content: pa.Buffer, where: str) -> pa.Table:
        """All columns of the file."""
        import pyarrow.parquet as pq

        try:
            return pq.read_table(pa.BufferReader(content))
        except pa.ArrowInvalid as error:
            raise SourceError(f"not a Parquet file: {error}", where=where) from None


class CsvTable(FileTable):
    """CSV with a line of names: a file, or a folder of files. An empty cell is null."""

    type: Literal["csv"]
    delimiter: str = Field(",", min_length=1, max_length=1, description="Between two cells.")
    schema_: str | None = Field(
        None,
        alias="schema",
        description="Types of columns, as Spark DDL: 'show_id long, since timestamp'. Those of "
        "the others are found in the data.",
    )
    suffix = ".csv"

    def parse(self, content: pa.Buffer, where: str) -> pa.Table:
        """All columns of the file."""
        from pyarrow import csv

        try:
            return csv.read_csv(
                pa.BufferReader(content),
                parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types=self._types(where), null_values=[""], strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"not a CSV of such columns: {error}",
                where=where,
                fix="say in schema: of which types its columns are",
            ) from None

    def _types(self, where: str) -> dict[str, Any]:
        from tidemill.records.ddl import parse_columns

        if self.schema_ is None:
            return {}
        try:
            return {field.name: field.type for field in parse_columns(self.schema_)}
        except ConfigError as error:
            raise ConfigError(error.message, where=f"{where} (schema)", fix=error.fix) from None


def _names(filesystem: fs.FileSystem, path: str, suffix: str, where: str) -> list[str]:
    """The files of a folder, below it; for a file the empty name."""
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.File:
        return [""]
    if found.type == fs.FileType.NotFound:
        raise SourceError(f"there is no file or folder {path}", where=where, fix="correct path:")
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(info.path[len(path) + 1 :] for info in infos if info.type == fs.FileType.File)
    kept = [
        name
        for name in names
        if name.endswith(suffix) and not any(p.startswith(("_", ".")) for p in name.split("/"))
    ]
    if not kept:
        raise SourceError(f"no {suffix} file is below {path}", where=where, fix="correct path:")
    if any("=" in name.rpartition("/")[0] for name in kept):
        raise SourceError(
            f"a folder below {path} is named by a column's value, which would not be read",
            where=where,
            fix="write the column into the files, or make it an Iceberg table",
        )
    return kept


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if name else path


def _content(filesystem: fs.FileSystem, path: str, name: str, where: str) -> pa.Buffer:
    try:
        with filesystem.open_input_file(_join(path, name)) as file:
            return file.read_buffer()
    except FileNotFoundError:
        raise SourceError(
            f"the file {_join(path, name)} is gone", where=where, fix="restore it"
        ) from None


def _digest(content: pa.Buffer) -> str:
    return hashlib.sha256(content).hexdigest()

"""A file or a folder by its URI. A file that is written here appears whole or not at all.

The driver, Spark's source process and executors all read and write the files of a run through
this handle, so that a file may lie on any filesystem that Arrow knows. Files on a local disk are
read and written without Arrow, whose import takes longer than most of these files take to read.
``runfolder.folder`` says which of these files must lie on a local disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote_to_bytes, urlparse

from tidemill.errors import RunError
from tidemill.storage.disk import sync

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs


@dataclass(frozen=True)
class Location:
    """A file or folder: the URI of a root, and a name below it that is used as it is."""

    root: str
    name: str = ""

    @classmethod
    def of(cls, place: Place) -> Location:
        """The location of a local path, or of a URI."""
        if isinstance(place, Location):
            return place
        return cls(place if isinstance(place, str) else place.absolute().as_uri())

    def __truediv__(self, name: str) -> Location:
        """A file or folder below this folder; ``name`` may have several parts."""
        return Location(self.root, f"{self.name}/{name}" if self.name else name)

    def __str__(self) -> str:
        """As an error names it: a local path, or a URI."""
        path = self.path
        return str(path) if path else f"{self.root}/{self.name}".rstrip("/")

    @property
    def path(self) -> Path | None:
        """The path, if this is a local disk."""
        parts = urlparse(self.root)
        if parts.scheme != "file":
            return None
        root = Path(os.fsdecode(unquote_to_bytes(parts.path)))
        return root / self.name if self.name else root

    def read(self) -> bytes:
        """All bytes; FileNotFoundError if there is no such file."""
        path = self.path
        if path is not None:
            return path.read_bytes()
        filesystem, name = self._arrow()
        with filesystem.open_input_stream(name) as stream:
            return bytes(stream.read())

    def read_text(self) -> str:
        """All of a file of text."""
        return self.read().decode("utf-8")

    def read_json(self) -> Any:
        """The value of a JSON file; None if there is no such file."""
        try:
            return json.loads(self.read())
        except FileNotFoundError:
            return None

    def read_arrow(self) -> pa.Table:
        """All rows of an Arrow file."""
        import pyarrow as pa

        filesystem, name = self._arrow()
        with filesystem.open_input_file(name) as stream:
            return pa.ipc.open_file(stream).read_all()

    def write(self, content: str | bytes, *, durable: bool = False) -> None:
        """Replace the file whole: a reader sees the old content or the new one, never a part.

        ``durable``: when this returns, no power failure can take the file. An object store keeps
        what it has confirmed. The folder must be there: a lost run folder is not made again.
        """
        path = self.path
        if path is None:
            with self._stream() as stream:
                stream.write(_bytes(content))
            return
        with _draft(path, content, durable) as draft:
            draft.replace(path)
        if durable:
            sync(path.parent)

    def write_json(self, value: object) -> None:
        """Replace the file whole by a JSON value."""
        self.write(json.dumps(value))

    def write_first(self, content: str | bytes) -> bool:
        """Write the file if there is none yet; False if another writer was first, whose file stays.

        Of two writers at once exactly one is first. Folders that are missing are made. The easy
        mistake is to go on with one's own content: read the file again.
        """
        path = self.path
        if path is None:
            raise RunError(
                "a decision can only be written to a local disk",
                where=str(self),
                fix="set home: in the YAML to a folder of the driver's machine",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with _draft(path, content) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
        return True

    def write_arrow(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write an Arrow file whole, with the folders above it; two may write the same rows."""
        import pyarrow as pa

        with self._stream() as stream, pa.ipc.new_file(stream, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def make_folder(self) -> None:
        """Make the folders above a file, where a file system has folders."""
        path = self.path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The names in the folder, in order; none if there is no such folder."""
        path = self.path
        if path is None:
            return sorted(self.sizes())
        return sorted(os.listdir(path)) if path.is_dir() else []

    def sizes(self) -> dict[str, int | None]:
        """The names in the folder with the bytes of each file; a folder has None."""
        from pyarrow import fs

        filesystem, name = self._arrow()
        found = filesystem.get_file_info(fs.FileSelector(name, allow_not_found=True))
        return {info.base_name: info.size for info in found}

    def remove(self) -> None:
        """Remove the file, if it is there."""
        path = self.path
        if path is not None:
            path.unlink(missing_ok=True)
            return
        filesystem, name = self._arrow()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(name)

    def remove_folder(self) -> None:
        """Remove the folder with all that is in it, if it is there."""
        filesystem, name = self._arrow()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_dir(name)

    @contextlib.contextmanager
    def _stream(self) -> Iterator[pa.NativeFile]:
        """A draft beside the file, which takes the file's name when all is written."""
        filesystem, name = self._arrow()
        filesystem.create_dir(name.rsplit("/", 1)[0], recursive=True)
        draft = f"{name}.{uuid.uuid4().hex}.tmp"
        try:
            with filesystem.open_output_stream(draft) as stream:
                yield stream
            filesystem.move(draft, name)
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.delete_file(draft)
            raise

    def _arrow(self) -> tuple[fs.FileSystem, str]:
        from pyarrow import fs

        filesystem, base = fs.FileSystem.from_uri(self.root)
        return filesystem, f"{base}/{self.name}" if self.name else base


Place: TypeAlias = Location | Path | str
"""Anything that :meth:`Location.of` takes: a location, a local path, a URI."""


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8") if isinstance(content, str) else content


@contextlib.contextmanager
def _draft(path: Path, content: str | bytes, durable: bool = False) -> Iterator[Path]:
    """The content under a name of its own; the draft is gone afterwards, however this ends."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        draft.write_bytes(_bytes(content))
        if durable:
            sync(draft)
        yield draft
    finally:
        draft.unlink(missing_ok=True)

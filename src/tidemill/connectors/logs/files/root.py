"""Where the files of a feed may lie: below one root, on one filesystem, and nowhere else.

Requests come from whoever may write to a topic. They choose files below the root; they choose no
filesystem, no server, no credentials, and no link leads them out.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from tidemill.errors import SourceError
from tidemill.records.decoded import UnreadableFile


class StorageAway(Exception):
    """The storage does not answer now; nothing is wrong with the file as far as one can see."""


@dataclass(frozen=True)
class FoundFile:
    """A file as it was when its slice was decided."""

    path: str  # on the root's filesystem
    size: int
    mtime: int | None  # ns

    def error(self, message: str, fix: str) -> SourceError:
        """What stops a run that has to read this file."""
        return SourceError(message, where=self.path, fix=fix, file=self.path)


class Root:
    """The folder of a feed. Made on the driver, pickled to executors."""

    def __init__(self, uri: str) -> None:
        """``uri`` is one that Arrow knows; a query may configure the filesystem."""
        self.uri = uri

    def __getstate__(self) -> dict[str, str]:
        """A filesystem is opened where it is used."""
        return {"uri": self.uri}

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        filesystem, base = fs.FileSystem.from_uri(self.uri)
        if isinstance(filesystem, fs.LocalFileSystem):
            base = os.path.realpath(base)
        return filesystem, base.rstrip("/")

    @property
    def filesystem(self) -> fs.FileSystem:
        """The filesystem of all files of the feed."""
        return self._opened[0]

    @property
    def base(self) -> str:
        """The path of the root on its filesystem."""
        return self._opened[1]

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def shown(self) -> str:
        """The root's URI without password and query, for messages."""
        return _plain(self.uri)

    def resolve(self, uri: str) -> str:
        """The path of a requested file; refuses one that is not below the root."""
        path = self._local(uri) if self.is_local else self._remote(uri)
        if not path.startswith(f"{self.base}/"):
            raise self._outside(uri)
        return path

    def _local(self, uri: str) -> str:
        path = uri
        if "://" in uri or uri.startswith("file:"):
            parts = urlsplit(uri)
            foreign = parts.netloc not in ("", "localhost") or parts.query or parts.fragment
            if parts.scheme != "file" or foreign:
                raise self._outside(uri)
            path = unquote(parts.path)
        try:
            found = os.path.realpath(os.path.join(self.base, path))
            found.encode()  # a link may lead to a name that is not UTF-8, which Arrow cannot open
            return found
        except ValueError as error:
            raise UnreadableFile(f"{uri!r} is not a path: {error}") from None

    def _remote(self, uri: str) -> str:
        rest = uri
        if "://" in uri:
            if not uri.startswith(f"{self.shown}/") or "?" in uri or "#" in uri:
                raise self._outside(uri)
            rest = unquote(uri[len(self.shown) + 1 :])
        path = posixpath.join(self.base, rest)
        if posixpath.normpath(path) != path or "\0" in path:
            raise self._outside(uri)
        return path

    def _outside(self, uri: str) -> UnreadableFile:
        return UnreadableFile(f"outside the root: {uri} is not below {self.shown}")

    def find(self, uri: str) -> FoundFile:
        """The file of a request, as it is now."""
        return self._found(self.resolve(uri), uri)

    def again(self, file: FoundFile) -> FoundFile:
        """The same file, as it is now."""
        return self._found(file.path, file.path)

    def _found(self, path: str, uri: str) -> FoundFile:
        try:
            info = self.filesystem.get_file_info(path)
        except OSError as error:
            if self.is_local or "ACCESS_DENIED" in str(error):
                raise UnreadableFile(f"the file cannot be looked at: {short(error)}") from None
            raise StorageAway(f"{path}: {short(error)}") from None
        if info.type == fs.FileType.NotFound:
            raise UnreadableFile(f"there is no file {uri}")
        if info.type != fs.FileType.File:
            raise UnreadableFile(f"{uri} is not a file")
        return FoundFile(path, info.size, info.mtime_ns)

    def require_unchanged(self, file: FoundFile) -> None:
        """A slice is a pure function of its offsets: what was decided must be what is read."""
        try:
            info = self.filesystem.get_file_info(file.path)
            is_moved = self.is_local and os.path.realpath(file.path) != file.path
        except OSError as error:
            raise file.error(
                f"the file cannot be looked at: {short(error)}",
                "check the storage, then 'tidemill resume'",
            ) from None
        if info.type == fs.FileType.NotFound:
            raise file.error(
                "the file is gone since its request was taken up",
                "restore it with its old modification time, then 'tidemill resume'; or start a "
                "new run",
            )
        if is_moved or (info.size, info.mtime_ns) != (file.size, file.mtime):
            raise file.error(
                "the file changed since its request was taken up",
                "restore the old file with its modification time, then 'tidemill resume'; or "
                "start a new run. Files of a feed are written once",
            )

    def is_sound(self, file: FoundFile) -> bool:
        """Whether the storage gives all of the file's bytes, whatever they mean."""
        try:
            with self.filesystem.open_input_stream(file.path, compression=None) as stream:
                left = file.size
                while left > 0 and (found := len(stream.read(8_000_000))):
                    left -= found
        except OSError:
            return False
        return left == 0


def short(error: object) -> str:
    """The first line of an error's text; what follows is about the library."""
    return str(error).partition("\n")[0][:300]


def _plain(uri: str) -> str:
    """A URI without query, end slash and password."""
    text = uri.partition("?")[0].rstrip("/")
    scheme, separator, rest = text.partition("://")
    user, at, host = rest.partition("@")
    return f"{scheme}{separator}{host}" if at and ":" in user else text

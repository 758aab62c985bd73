"""Deal rows by a hash to files, so that equal ones are together and memory stays bounded.

Up to a limit rows are held in memory. Beyond it they go to files of a temporary folder, and are
taken back one bucket at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

HELD = 1_000_000
FILES = 64
_FILE = "_tidemill_file"


class Dealt:
    """Rows in buckets: rows whose ``hashed`` is the same number are in the same bucket.

    ``hashed`` gives an unsigned number for every row of a frame. Use it as a context manager: its
    files go when it ends.
    """

    def __init__(
        self,
        hashed: Callable[[pl.DataFrame], pl.Series],
        folder: Path | None,
        *,
        held: int = HELD,
        files: int = FILES,
    ) -> None:
        """``folder`` gets a folder for files, if more than ``held`` rows come."""
        self._hashed, self._folder, self._limit, self._count = hashed, folder, held, files
        self._held: list[pl.DataFrame] = []
        self._rows = 0
        self._spilled: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[int, Any] = {}
        self.bytes: dict[int, int] = {}

    @property
    def is_spilled(self) -> bool:
        """Whether there are files."""
        return self._spilled is not None

    def __enter__(self) -> Dealt:
        """Nothing is made before there are too many rows."""
        return self

    def __exit__(self, *ended: object) -> None:
        """Remove the files."""
        self._held = []
        if self._spilled is not None:
            self._spilled.cleanup()

    def add(self, frame: pl.DataFrame) -> None:
        """Add some rows."""
        self._held.append(frame)
        self._rows += len(frame)
        if self._rows > self._limit:
            self.spill()

    def whole(self) -> pl.DataFrame | None:
        """All rows, of rows that were never spilled; None if there are none."""
        import polars as pl

        return pl.concat(self._held) if self._held else None

    def buckets(self) -> list[int]:
        """The buckets that have rows; ends the adding."""
        if self._spilled is None:
            return [0] if self._held else []
        self.spill()
        for writer in self._files.values():
            writer.close()
        return sorted(self._files)

    def take(self, bucket: int) -> pl.DataFrame | None:
        """The rows of one bucket, after :meth:`buckets`; None if it has none."""
        import polars as pl

        if self._spilled is None:
            return self.whole()
        return pl.read_ipc_stream(self._path(bucket)) if bucket in self._files else None

    def frames(self) -> Iterator[pl.DataFrame]:
        """All rows, bucket by bucket."""
        for bucket in self.buckets():
            frame = self.take(bucket)
            if frame is not None:
                yield frame

    def spill(self) -> None:
        """Deal what is held to files."""
        import polars as pl

        if self._spilled is None:
            self._spilled = tempfile.TemporaryDirectory(dir=self._folder)
        if not self._held:
            return
        frame, self._held, self._rows = pl.concat(self._held), [], 0
        dealt = frame.with_columns((self._hashed(frame) % self._count).alias(_FILE))
        for (file,), part in dealt.partition_by([_FILE], as_dict=True, include_key=False).items():
            table = part.to_arrow()
            if file not in self._files:
                self._files[file] = pa.ipc.new_stream(self._path(file), table.schema)
            self._files[file].write_table(table)
            self.bytes[file] = self.bytes.get(file, 0) + table.nbytes

    def _path(self, file: int) -> str:
        assert self._spilled is not None
        return str(Path(self._spilled.name) / str(file))

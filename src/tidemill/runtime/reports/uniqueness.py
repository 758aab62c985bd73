"""Count rows whose key another row has, exactly and in bounded memory.

Up to a limit the keys are held in memory. Beyond it they are dealt by their hash to files, so that
equal keys are in one file, and the files are counted one by one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

_HELD = 1_000_000
_FILES = 64
_FILE = "_tidemill_file"
_ROWS = "_tidemill_rows"


class KeyCounter:
    """Takes the rows of a table batch by batch; null is a value like any other."""

    def __init__(self, columns: Sequence[str], folder: Path, held: int = _HELD) -> None:
        """``folder`` gets a folder for files, if more than ``held`` keys come; it goes again."""
        self._columns, self._folder, self._limit = list(columns), folder, held
        self._held: list[pl.DataFrame] = []
        self._rows = 0
        self._spilled: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[int, Any] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the keys of some rows."""
        import polars as pl

        frame = pl.from_arrow(rows.select(self._columns))
        assert isinstance(frame, pl.DataFrame)
        self._held.append(frame)
        self._rows += len(frame)
        if self._rows > self._limit:
            self._spill()

    def repeated(self) -> tuple[int, pl.DataFrame | None]:
        """How many rows have a key that another row has, and one such key. Ends the count."""
        import polars as pl

        total, example = 0, None
        for frame in self._frames():
            keys = frame.group_by(self._columns).agg(pl.len().alias(_ROWS))
            found = keys.filter(pl.col(_ROWS) > 1)
            if len(found):
                total += int(found[_ROWS].sum())
                example = found.select(self._columns).head(1) if example is None else example
        self._held = []
        if self._spilled is not None:
            self._spilled.cleanup()
        return total, example

    def _frames(self) -> Iterator[pl.DataFrame]:
        """All keys; equal ones are in one frame."""
        import polars as pl

        if self._spilled is None:
            if self._held:
                yield pl.concat(self._held)
            return
        self._spill()
        for file, writer in self._files.items():
            writer.close()
            yield pl.read_ipc_stream(self._path(file))

    def _spill(self) -> None:
        import polars as pl

        if self._spilled is None:
            self._spilled = tempfile.TemporaryDirectory(dir=self._folder)
        if not self._held:
            return
        frame, self._held, self._rows = pl.concat(self._held), [], 0
        dealt = frame.with_columns((frame.hash_rows() % _FILES).alias(_FILE))
        for (file,), part in dealt.partition_by([_FILE], as_dict=True, include_key=False).items():
            table = part.to_arrow()
            if file not in self._files:
                self._files[file] = pa.ipc.new_stream(self._path(file), table.schema)
            self._files[file].write_table(table)

    def _path(self, file: int) -> str:
        assert self._spilled is not None
        return str(Path(self._spilled.name) / str(file))

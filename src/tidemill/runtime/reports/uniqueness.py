"""Count rows whose key another row has, exactly and in bounded memory.

Up to a limit the keys are held in memory. Beyond it they are dealt by their hash to files, so that
equal keys are in one file, and the files are counted one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.rows.dealing import HELD, Dealt

if TYPE_CHECKING:
    import polars as pl

_ROWS = "_tidemill_rows"


class KeyCounter:
    """Takes the rows of a table batch by batch; null is a value like any other."""

    def __init__(self, columns: Sequence[str], folder: Path, held: int = HELD) -> None:
        """``folder`` gets a folder for files, if more than ``held`` keys come; it goes again."""
        self._columns = list(columns)
        self._dealt = Dealt(lambda frame: frame.hash_rows(), folder, held=held)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the keys of some rows."""
        import polars as pl

        frame = pl.from_arrow(rows.select(self._columns))
        assert isinstance(frame, pl.DataFrame)
        self._dealt.add(frame)

    def repeated(self) -> tuple[int, pl.DataFrame | None]:
        """How many rows have a key that another row has, and one such key. Ends the count."""
        import polars as pl

        total, example = 0, None
        with self._dealt as dealt:
            for frame in dealt.frames():
                keys = frame.group_by(self._columns).agg(pl.len().alias(_ROWS))
                found = keys.filter(pl.col(_ROWS) > 1)
                if len(found):
                    total += int(found[_ROWS].sum())
                    example = found.select(self._columns).head(1) if example is None else example
        return total, example

"""What a task reads on an executor, of an archive or of a live log: pieces, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Piece:
    """What one task reads of one file: rows with ingest time in ``[start, end)``.

    ``handle`` is the reader's own description of the file; it travels to executors.
    """

    handle: Any
    start: int
    end: int
    rows: int


class PieceReader(Protocol):
    """What reads pieces of a source on executors; made on the driver, pickled."""

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The piece's rows with exactly these columns, in any order. Executor."""
        ...

"""How a slice is dealt out to tasks: a pure function of the pin, the slice and the parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidemill.sources.base import Piece

if TYPE_CHECKING:
    from tidemill.planning.statistics import Extent

_SMALL = 50_000
"""Rows that are not worth a task of their own."""


def pieces_of(extents: Sequence[tuple[Any, Extent]], start: int, end: int) -> list[Piece]:
    """One piece per file with rows in ``[start, end)``, with an estimate of its rows."""
    rows: dict[str, float] = {}
    handles: dict[str, Any] = {}
    for handle, extent in extents:
        if extent.first < end and extent.last >= start:
            overlap = min(extent.end, end) - max(extent.first, start)
            share = extent.rows * overlap / (extent.end - extent.first)
            rows[extent.file] = rows.get(extent.file, 0.0) + share
            handles[extent.file] = handle
    return [Piece(handles[file], start, end, max(1, round(rows[file]))) for file in sorted(rows)]


def deal(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Balanced lists of pieces for at most ``tasks`` tasks; at least one list, maybe empty.

    A piece larger than its share is cut by ingest time, so that one wide file feeds all cores.
    """
    total = sum(piece.rows for piece in pieces)
    count = max(1, min(tasks, total // _SMALL))
    fair = total / count if count else 0
    cut = [part for piece in pieces for part in _cut(piece, fair)]
    loads: list[list[Piece]] = [[] for _ in range(count)]
    weights = [0] * count
    for piece in sorted(cut, key=lambda piece: -piece.rows):
        lightest = weights.index(min(weights))
        loads[lightest].append(piece)
        weights[lightest] += piece.rows
    return loads


def _cut(piece: Piece, fair: float) -> list[Piece]:
    parts = min(int(piece.rows // max(fair, _SMALL)), piece.end - piece.start)
    if parts < 2 or piece.rows < fair * 1.3:
        return [piece]
    width = (piece.end - piece.start) / parts
    edges = [piece.start + round(width * index) for index in range(parts)] + [piece.end]
    return [Piece(piece.handle, low, high, piece.rows // parts) for low, high in pairwise(edges)]

"""How a slice is dealt out to tasks: a pure function of the pin, the slice and the parallelism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.connectors.pieces import Piece

if TYPE_CHECKING:
    from tidemill.planning.statistics import Extent

_SMALL = 50_000
"""Rows that are not worth a task of their own."""

_SLACK = 0.1
"""How much more or less than its fair share a task may get, to save a cut."""


def pieces_of(extents: Sequence[tuple[Any, Extent]], start: int, end: int) -> list[Piece]:
    """One piece per file with rows in ``[start, end)``, with an estimate of its rows.

    A piece spans no more than its file does, so that cutting it by time cuts its rows.
    """
    found: dict[str, Piece] = {}
    for handle, extent in extents:
        if extent.first < end and extent.last >= start:
            low, high = max(extent.first, start), min(extent.end, end)
            rows = round(extent.rows * (high - low) / (extent.end - extent.first))
            known = found.get(extent.file)
            if known is not None:
                low, high, rows = min(low, known.start), max(high, known.end), rows + known.rows
            found[extent.file] = Piece(handle, low, high, max(1, rows))
    return [found[file] for file in sorted(found)]


def deal(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Balanced lists of pieces for at most ``tasks`` tasks; at least one list, maybe empty.

    Pieces are laid end to end and the line is cut into equal lengths: a task gets whole files and
    at most two parts of files, and one wide file feeds all cores.
    """
    total = sum(piece.rows for piece in pieces)
    count = max(1, min(tasks, total // _SMALL))
    fair = total / count
    loads: list[list[Piece]] = [[]]
    room = fair
    for whole in pieces:
        piece = whole
        while len(loads) < count and piece.rows > room + fair * _SLACK:
            head, tail = _cut(piece, room)
            loads[-1] += [head] if head else []
            loads.append([])
            piece, room = tail, fair
        loads[-1].append(piece)
        room -= piece.rows
        if len(loads) < count and room < fair * _SLACK:
            loads.append([])
            room = fair
    return loads


def spread(pieces: Iterable[Piece], tasks: int) -> list[list[Piece]]:
    """Whole pieces for at most ``tasks`` tasks: the largest first, each to the least laden.

    Pieces of one size are dealt in the order in which they are given.
    """
    found = sorted(pieces, key=lambda piece: -piece.rows)
    loads: list[list[Piece]] = [[] for _ in range(max(1, min(tasks, len(found))))]
    sizes = [0] * len(loads)
    for piece in found:
        least = sizes.index(min(sizes))
        loads[least].append(piece)
        sizes[least] += piece.rows
    return loads


def _cut(piece: Piece, rows: float) -> tuple[Piece | None, Piece]:
    """The piece's first ``rows`` rows, as far as its density is even, and the rest."""
    width = piece.end - piece.start
    at = piece.start + int(width * max(0.0, rows) / piece.rows)
    if at <= piece.start or at >= piece.end:
        return None, piece
    taken = round(piece.rows * (at - piece.start) / width)
    head = Piece(piece.handle, piece.start, at, max(1, taken))
    return head, Piece(piece.handle, at, piece.end, max(1, piece.rows - taken))

"""Offsets of the log that never had a record: `archive check` must not report them as holes.

Transaction markers, aborted records and records that a compacted topic dropped leave no row, so the
rows alone cannot tell such offsets from lost rows. Every batch that met such offsets lists them in
the summary of its snapshot. Whoever expires snapshots first copies their lists into a table
property of the same form.

The form is JSON: for each partition a list of ``[first, last]``, both inclusive; none of these
offsets has a record. If there are too many ranges to keep, neighbours are merged into
``[first, last, missing]``: so many offsets of the range have no record. A lost row still shows by
the count, but no longer at which offset it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.archive.progress import in_summary
from tidemill.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

MARKERS = "tidemill.archive.missing_offsets"
"""The key in a snapshot's summary, and of the table property."""

Gap = tuple[int, int] | tuple[int, int, int]
"""``(first, last)``, or ``(first, last, missing)`` where neighbours were merged."""

_IN_SUMMARY = 200
_IN_PROPERTY = 2_000
_FEWEST = 8
_TRIPLE = 3


def missing_in(gap: Sequence[int]) -> int:
    """How many offsets of the gap have no record."""
    return gap[2] if len(gap) == _TRIPLE else gap[1] - gap[0] + 1


def is_whole(gap: Sequence[int]) -> bool:
    """Whether no offset of the gap has a record."""
    return missing_in(gap) == gap[1] - gap[0] + 1


def to_summary(markers: Mapping[int, Iterable[Sequence[int]]]) -> dict[str, str]:
    """The summary property of the snapshot that commits a batch; empty without such offsets.

    The writer of an archive gives only the offsets that this batch met, not those of earlier ones.
    """
    return _as_property(merge(markers), _IN_SUMMARY)


def carried(
    metadata: TableMetadata, *more: Mapping[int, Iterable[Sequence[int]]]
) -> dict[str, str]:
    """The table property for a transaction that expires snapshots; empty without such offsets.

    It holds everything that the metadata says, and ``more``, not only the lists of the snapshots to
    be expired. The transaction also requires that no snapshot was added meanwhile. So of two such
    transactions at the same time neither loses what the other one kept.
    """
    return _as_property(merge(markers_of(metadata), *more), _IN_PROPERTY)


def markers_of(metadata: TableMetadata) -> dict[int, list[Gap]]:
    """All known offsets without a record: from the table property and all snapshot summaries."""
    return merge(*_said(metadata))


def _said(metadata: TableMetadata) -> Iterator[dict[int, list[Gap]]]:
    if MARKERS in metadata.properties:
        yield _parse(metadata.properties[MARKERS], "the table property")
    for snapshot in metadata.snapshots:
        text = in_summary(snapshot, MARKERS)
        if text is not None:
            yield _parse(text, f"the summary of snapshot {snapshot.snapshot_id}")


def merge(*parts: Mapping[int, Iterable[Sequence[int]]]) -> dict[int, list[Gap]]:
    """The union, by partition, in order, without overlap. What is listed twice counts once.

    A range inside a merged range is in its count already: batches list offsets in the order of the
    log, and the merged range was made of everything listed until then.
    """
    gathered: dict[int, list[Gap]] = {}
    for part in parts:
        for partition, gaps in part.items():
            gathered.setdefault(partition, []).extend(map(_checked, gaps))
    return {partition: _union(gathered[partition]) for partition in sorted(gathered)}


def _union(gaps: list[Gap]) -> list[Gap]:
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda each: (each[0], -each[1], -missing_in(each))):
        last = found[-1] if found else None
        if last is None or gap[0] > last[1] + 1:
            found.append(gap)
        elif is_whole(last) and is_whole(gap):
            found[-1] = (last[0], max(last[1], gap[1]))
        elif gap[0] == last[1] + 1:
            found.append(gap)
        elif gap[1] > last[1] and is_whole(gap):
            found.append((last[1] + 1, gap[1]))
        elif gap[1] > last[1]:  # our writers never do this; a count too low cannot hide a hole
            found[-1] = _gap(last[0], gap[1], max(missing_in(last), missing_in(gap)))
    return found


def _condensed(gaps: list[Gap], most: int) -> list[Gap]:
    """Merge neighbours into ranges of even width until at most ``most`` are left."""
    width = 1
    while len({gap[0] // width for gap in gaps}) > most:
        width *= 2
    found: list[Gap] = []
    for gap in gaps:
        if found and found[-1][0] // width == gap[0] // width:
            found[-1] = _gap(found[-1][0], gap[1], missing_in(found[-1]) + missing_in(gap))
        else:
            found.append(gap)
    return found


def _gap(first: int, last: int, missing: int) -> Gap:
    return (first, last) if missing == last - first + 1 else (first, last, missing)


def _as_property(markers: dict[int, list[Gap]], most: int) -> dict[str, str]:
    each = max(_FEWEST, most // max(1, len(markers)))
    kept = {str(number): _condensed(gaps, each) for number, gaps in markers.items() if gaps}
    return {MARKERS: json.dumps(kept)} if kept else {}


def _checked(gap: Sequence[int]) -> Gap:
    first, last, *more = (int(number) for number in gap)
    if len(more) > 1 or first > last or not all(0 < each <= last - first + 1 for each in more):
        raise ValueError(f"{list(gap)} is not a range of offsets")
    return _gap(first, last, more[0]) if more else (first, last)


def _parse(text: str, place: str) -> dict[int, list[Gap]]:
    try:
        return {int(n): [_checked(gap) for gap in gaps] for n, gaps in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{place} is damaged at {MARKERS}: {error}",
            fix="restore the table's metadata, or remove the property: "
            "'archive check' then takes these offsets for holes",
        ) from None

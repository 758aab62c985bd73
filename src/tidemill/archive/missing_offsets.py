"""Offsets of the log that have no record, as the archive was told: these are not holes.

Transaction markers, aborted records and what a compacted topic dropped leave no row, so rows alone
cannot tell them from a loss. Every batch that met such offsets says so in its snapshot's summary;
whoever expires a snapshot first folds what it said into a table property of the same form.

The form: JSON, by partition a list of ``[first, last]``, both inclusive: none of these offsets has
a record. Where there are too many to keep, neighbours are drawn together as
``[first, last, missing]``: as many offsets of the range have no record. A lost row still shows,
by the count; only its place in the range does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.errors import SourceError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

MARKERS = "tidemill.archive.missing_offsets"
"""The key in a snapshot's summary, and of the table property."""

Gap = tuple[int, int] | tuple[int, int, int]
"""``(first, last)``, or ``(first, last, missing)`` where neighbours were drawn together."""

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
    """The property for the summary of the snapshot that commits a batch; empty without markers.

    For whoever writes an archive. Give what this batch met, not what earlier ones did.
    """
    return _as_property(merge(markers), _IN_SUMMARY)


def carried(
    metadata: TableMetadata, *more: Mapping[int, Iterable[Sequence[int]]]
) -> dict[str, str]:
    """The table property for a transaction that expires snapshots; empty without markers.

    It holds all that the metadata says and ``more``, not only what the doomed snapshots said: so,
    with the requirement that no snapshot was added meanwhile, of two such transactions beside each
    other neither forgets what the other one kept.
    """
    return _as_property(merge(markers_of(metadata), *more), _IN_PROPERTY)


def markers_of(metadata: TableMetadata) -> dict[int, list[Gap]]:
    """All that is known: the table property and the summaries of all snapshots there are."""
    return merge(*_said(metadata))


def _said(metadata: TableMetadata) -> Iterator[dict[int, list[Gap]]]:
    if MARKERS in metadata.properties:
        yield _parse(metadata.properties[MARKERS], "the table property")
    for snapshot in metadata.snapshots:
        text = snapshot.summary.additional_properties.get(MARKERS) if snapshot.summary else None
        if text is not None:
            yield _parse(text, f"the summary of snapshot {snapshot.snapshot_id}")


def merge(*parts: Mapping[int, Iterable[Sequence[int]]]) -> dict[int, list[Gap]]:
    """The union, by partition, in order, without overlap. What was said twice counts once.

    What lies inside a drawn-together range is in its count already: offsets are told in the order
    of the log, and the range was made of all that had been told.
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
        elif gap[1] > last[1]:  # no writer of ours does it; too few known markers hide no hole
            found[-1] = _gap(last[0], gap[1], max(missing_in(last), missing_in(gap)))
    return found


def _condensed(gaps: list[Gap], most: int) -> list[Gap]:
    """Neighbours drawn together in ranges of even width until there are few enough."""
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

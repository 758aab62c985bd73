import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.archive import missing_offsets as markers
from tidemill.archive.missing_offsets import (
    MARKERS,
    carried,
    markers_of,
    merge,
    missing_in,
    to_summary,
)
from tidemill.errors import SourceError


def metadata(*said, kept=None):
    """Of a table whose snapshots said this."""
    snapshots = [
        SimpleNamespace(
            snapshot_id=number,
            summary=SimpleNamespace(additional_properties={} if text is None else {MARKERS: text}),
        )
        for number, text in enumerate(said)
    ]
    return SimpleNamespace(
        properties={} if kept is None else {MARKERS: kept},
        snapshots=[*snapshots, SimpleNamespace(snapshot_id=99, summary=None)],
    )


def test_the_form_is_ranges_by_partition():
    said = to_summary({1: [(7, 7)], 0: [(3, 4), (9, 9)]})
    assert json.loads(said[MARKERS]) == {"0": [[3, 4], [9, 9]], "1": [[7, 7]]}
    assert markers_of(metadata(said[MARKERS])) == {0: [(3, 4), (9, 9)], 1: [(7, 7)]}


def test_without_markers_nothing_is_said():
    assert to_summary({}) == to_summary({0: []}) == carried(metadata(None)) == {}
    assert markers_of(metadata()) == {}


def test_all_snapshots_and_the_table_are_heard():
    found = metadata(
        '{"0": [[3, 4]]}', None, '{"0": [[8, 8]], "2": [[1, 1]]}', kept='{"0": [[5, 6]]}'
    )
    assert markers_of(found) == {0: [(3, 6), (8, 8)], 2: [(1, 1)]}
    assert json.loads(carried(found, {2: [(5, 5)]})[MARKERS]) == {
        "0": [[3, 6], [8, 8]],
        "2": [[1, 1], [5, 5]],
    }


@pytest.mark.parametrize(
    "text", ["", "[]", '{"0": [[5, 3]]}', '{"0": [[1, 2, 3]]}', '{"a": []}', '{"0": [7]}']
)
def test_what_is_damaged_is_said(text):
    with pytest.raises(SourceError, match="snapshot 0 is damaged at tidemill"):
        markers_of(metadata(text))
    with pytest.raises(SourceError, match="the table property is damaged"):
        markers_of(metadata(kept=text))


OFFSETS = st.sets(st.integers(0, 300), max_size=80)


def ranges(offsets):
    return [(offset, offset) for offset in sorted(offsets)]


def offsets_of(gaps):
    return {offset for first, last in gaps for offset in range(first, last + 1)}


@given(OFFSETS, OFFSETS)
def test_what_is_said_twice_counts_once(one, two):
    found = merge({0: ranges(one)}, {0: ranges(two)}, {0: ranges(one)})[0]
    assert offsets_of(found) == one | two
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


@given(st.lists(OFFSETS, max_size=6), st.integers(1, 9))
def test_however_often_it_is_folded_the_counts_are_right(batches, most):
    """Batches follow each other in the log; after each the table is told, drawn together."""
    told, kept, base = set(), None, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markers, "_IN_PROPERTY", most)
        patch.setattr(markers, "_FEWEST", 1)
        for batch in batches:
            own = {base + offset for offset in batch}
            base += 301
            told |= own
            text = to_summary({0: ranges(own)}).get(MARKERS)
            kept = carried(metadata(text, kept=kept)).get(MARKERS, kept)
            again = metadata(text, kept=kept)  # what the table has, a snapshot says too
            found = markers_of(again).get(0, [])
            assert sum(map(missing_in, found)) == len(told)
            assert len(json.loads(kept or '{"0": []}').get("0", [])) <= most
            for gap in found:
                inside = sum(gap[0] <= offset <= gap[1] for offset in told)
                assert (inside, {gap[0], gap[1]} <= told) == (missing_in(gap), True)


def test_so_many_that_ranges_are_drawn_together():
    many = {n: [(offset, offset) for offset in range(0, 100_000, 7)] for n in range(3)}
    text = to_summary(many)[MARKERS]
    assert len(text) < 6_000
    found = markers_of(metadata(text))
    assert {sum(map(missing_in, gaps)) for gaps in found.values()} == {len(many[0])}
    assert {len(gap) for gap in found[0]} == {3}


def test_what_goes_on_beyond_a_drawn_together_range_is_new():
    assert merge({0: [(0, 100, 7)]}, {0: [(50, 50), (90, 120)]}) == {0: [(0, 100, 7), (101, 120)]}
    assert merge({0: [(0, 100, 7)]}, {0: [(101, 101)]}) == {0: [(0, 100, 7), (101, 101)]}
    assert merge({0: [(0, 100, 7)]}, {0: [(50, 120, 9)]}) == {0: [(0, 120, 9)]}

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.planning.statistics import Extent, Share, SourceStatistics

MS = 1_000


def extent(first, last, rows, size=0):
    return Extent("f.parquet", first, last, rows, size)


EXTENTS = st.lists(
    st.builds(
        lambda first, width, rows, size: extent(first, first + width, rows, size),
        st.integers(0, 10_000_000),
        st.integers(0, 5_000_000),
        st.integers(0, 10**7),
        st.integers(0, 10**9),
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def covered(draw):
    """Statistics and boundaries that cover all of their extents."""
    statistics = SourceStatistics(tuple(draw(EXTENTS)))
    start, end = statistics.span
    inner = draw(st.lists(st.integers(0, (end - start) // MS), max_size=6))
    boundaries = sorted({start, end, *(start + moment * MS for moment in inner)})
    return statistics, boundaries


@settings(max_examples=200)
@given(covered())
def test_the_span_is_whole_milliseconds_around_every_row(found):
    statistics, _ = found
    start, end = statistics.span
    assert start % MS == end % MS == 0
    assert start <= min(e.first for e in statistics.extents) < start + MS
    assert end - MS <= max(e.last for e in statistics.extents) < end


@settings(max_examples=400)
@given(covered())
def test_shares_are_the_even_spread_of_each_extent(found):
    statistics, boundaries = found
    shares = statistics.shares(boundaries)
    for (low, high), share in zip(pairwise(boundaries), shares, strict=True):
        overlaps = [
            (e, max(0, min(high, e.end) - max(low, e.first)) / (e.end - e.first))
            for e in statistics.extents
        ]
        assert share.rows == pytest.approx(sum(e.rows * part for e, part in overlaps), abs=1.01)
        assert share.bytes == pytest.approx(sum(e.bytes * part for e, part in overlaps), abs=1.01)


@settings(max_examples=200)
@given(covered())
@example((SourceStatistics((extent(0, 1_999, 3, 3),)), [0, MS, 2 * MS]))
def test_shares_sum_to_the_rows(found):
    statistics, boundaries = found
    shares = statistics.shares(boundaries)
    assert sum(share.rows for share in shares) == sum(e.rows for e in statistics.extents)
    assert sum(share.bytes for share in shares) == sum(e.bytes for e in statistics.extents)


def test_what_lies_outside_the_boundaries_is_not_counted():
    statistics = SourceStatistics((extent(0, 3_999, 40, 400), extent(9_000, 9_999, 7, 7)))
    assert statistics.shares([1_000, 2_000, 3_000]) == [Share(10, 100), Share(10, 100)]


def test_a_row_on_a_boundary_belongs_to_the_slice_that_begins_there():
    statistics = SourceStatistics((extent(1_000, 1_000, 5), extent(999, 999, 3)))
    assert [share.rows for share in statistics.shares([0, 1_000, 2_000])] == [3, 5]


def test_no_extent_no_span():
    assert SourceStatistics(()).span is None
    assert SourceStatistics(()).shares([0, 1_000]) == [Share(0, 0)]

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import PlanError
from tidemill.planning.slices import SLICE_BYTES, advise, cut_by_rows, cut_by_width
from tidemill.planning.statistics import Extent
from tidemill.types import micros_of

MS = 1_000
HOUR = 3_600_000
NEWYEAR = 1_767_225_600_000  # ms


STARTS = st.integers(NEWYEAR * MS, (NEWYEAR + 48 * HOUR) * MS)
WIDTHS = st.one_of(st.integers(1, 5_000), st.integers(1, 72 * HOUR))  # ms
PARTS = st.integers(1, 60)
# An extent: first and width in thousandths of the span (also outside of it), rows.
SHAPES = st.lists(
    st.tuples(st.integers(-1_000, 1_000), st.integers(0, 2_000), st.integers(1, 50_000_000)),
    max_size=6,
)


def make_span(start, width, parts):
    """(start, end), and a limit that cuts it into about so many slices."""
    return (start, start + width * MS), timedelta(milliseconds=max(1, width // parts))


def make_extents(shapes, span, grain):
    """Files in, across and outside the span, their edges on multiples of the grain."""
    start, end = span
    step = max(1, (end - start) // grain // 1_000) * grain
    return [
        Extent(f"{n}", start + low * step, start + low * step + (width + 1) * step - 1, rows, rows)
        for n, (low, width, rows) in enumerate(shapes)
    ]


def keeps_its_promises(boundaries, span, limit):
    assert boundaries[0] == span[0]
    assert boundaries[-1] == span[1]
    assert all(low < high <= low + micros_of(limit) for low, high in pairwise(boundaries))
    assert all(boundary % MS == 0 for boundary in boundaries[1:-1])


@settings(max_examples=1_000)
@given(STARTS, WIDTHS, PARTS, st.floats(0.1, 1))
def test_cut_by_width(start, span_width, parts, share):
    span, limit = make_span(start, span_width, parts)
    width = timedelta(milliseconds=max(1, int(micros_of(limit) // MS * share)))
    boundaries = cut_by_width(span, width, limit)
    keeps_its_promises(boundaries, span, width)
    assert all(boundary % micros_of(width) == 0 for boundary in boundaries[1:-1])


def test_hourly_slices_begin_at_the_hour():
    start, end = NEWYEAR * MS + 20 * 60 * MS * MS, (NEWYEAR + 3 * HOUR) * MS
    hours = [(NEWYEAR + hour * HOUR) * MS for hour in (1, 2, 3)]
    assert cut_by_width((start, end), timedelta(hours=1), timedelta(hours=1)) == (start, *hours)


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (timedelta(hours=2), "a slice of 2h is wider than max_misalignment 1h"),
        (timedelta(), "a slice of 0 holds no rows"),
    ],
)
def test_widths_that_are_refused(width, message):
    with pytest.raises(PlanError) as raised:
        cut_by_width((0, HOUR * MS), width, timedelta(hours=1))
    assert raised.value.message == message
    assert "--slice" in raised.value.fix


@settings(max_examples=1_000)
@given(STARTS, WIDTHS, PARTS, SHAPES, PARTS)
def test_cut_by_rows_keeps_the_promises_of_every_slicing(start, width, parts, shapes, targets):
    span, limit = make_span(start, width, parts)
    extents = make_extents(shapes, span, 1)
    rows = sum(extent.rows for extent in extents) // targets + 1
    keeps_its_promises(cut_by_rows(span, extents, rows, limit), span, limit)


def rows_between(extents, low, high):
    """Rows of evenly dense extents in [low, high)."""
    overlaps = (
        e.rows * max(0, min(high, e.end) - max(low, e.first)) / (e.end - e.first) for e in extents
    )
    return sum(overlaps)


@settings(max_examples=1_000)
@given(STARTS, WIDTHS, PARTS, SHAPES, PARTS)
def test_cut_by_rows_is_near_its_target(start, width, parts, shapes, targets):
    span, limit = make_span(start // MS * MS, width, parts)
    extents = make_extents(shapes, span, MS)
    rows = sum(extent.rows for extent in extents) // targets + 1
    boundaries = cut_by_rows(span, extents, rows, limit)
    # Boundaries are whole milliseconds, so a slice may hold one millisecond's rows too many.
    grain = sum(extent.rows * MS / (extent.end - extent.first) for extent in extents) + rows * 1e-6
    for low, high in pairwise(boundaries):
        found = rows_between(extents, low, high)
        assert found <= rows + grain
        if high != span[1] and high % micros_of(limit):
            assert found >= rows * 0.999 - grain


@pytest.mark.parametrize("width", [0, 1, 700])
def test_files_of_one_instant_count_like_all_others(width):
    """A loader that stamps every row of a file with the same time."""
    minute = 60_000 * MS
    files = [Extent(f"{n}", n * minute, n * minute + width, 1_000, 1) for n in range(60)]
    boundaries = cut_by_rows((0, 60 * minute), files, 10_000, timedelta(hours=1))
    assert len(boundaries) - 1 >= 6
    assert all(rows_between(files, low, high) <= 11_000 for low, high in pairwise(boundaries))


def test_a_stretch_without_rows_is_cut_at_multiples_of_the_limit():
    boundaries = cut_by_rows((700 * MS, 6_500 * MS), [], 5, timedelta(seconds=2))
    assert boundaries == tuple(s * MS for s in (700, 2_000, 4_000, 6_000, 6_500))


def test_even_rows_give_even_slices():
    file = Extent("a", 0, HOUR * MS - 1, 6_000, 1)
    boundaries = cut_by_rows((0, HOUR * MS), [file], 1_000, timedelta(hours=1))
    assert boundaries == tuple(minute * 60_000 * MS for minute in range(0, 61, 10))


@pytest.mark.parametrize("rows", [0, -1])
def test_a_slice_holds_rows(rows):
    with pytest.raises(PlanError, match=f"--slice-rows {rows} is not a positive number of rows"):
        cut_by_rows((0, MS), [], rows, timedelta(hours=1))


YEAR = 365 * 24 * HOUR * MS


def test_a_year_of_little_data_is_one_slice():
    days = [Extent(f"{day}", day * 24 * HOUR * MS, (day + 1) * 24 * HOUR * MS - 1, 300, 9_000)
            for day in range(365)]  # fmt: skip
    assert cut_by_rows((0, YEAR), days) == (0, YEAR)


def test_large_rows_make_smaller_slices():
    """A slice is full when either its rows or its bytes are enough."""
    documents = [Extent("large", 0, YEAR - 1, 1_000_000, 8 * SLICE_BYTES)]
    assert len(cut_by_rows((0, YEAR), documents)) - 1 == 8
    assert len(cut_by_rows((0, YEAR), documents, size=None)) - 1 == 1


def test_advice_is_given_where_a_setting_makes_needless_slices():
    file = [Extent("all", 0, 24 * HOUR * MS - 1, 120_000, 2_000_000)]
    hourly = cut_by_rows((0, 24 * HOUR * MS), file, limit=timedelta(hours=1))
    assert [text[:58] for text in advise(hourly, file, "max_misalignment: 1h")] == [
        "max_misalignment: 1h makes 24 slices where 1 would hold th"
    ]
    few = cut_by_rows((0, 24 * HOUR * MS), file, limit=timedelta(hours=6))
    assert not [*advise(few, file, "max_misalignment: 6h")]

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.connectors.pieces import Piece
from tidemill.connectors.tasks import _SMALL, deal, pieces_of, spread
from tidemill.planning.statistics import Extent

START, END = 1_000_000, 61_000_000
ROWS = st.one_of(st.integers(1, 1_000), st.integers(1, 30_000_000))
PIECES = st.lists(ROWS, max_size=12).map(
    lambda found: [Piece(f"f{n}", START, END, rows) for n, rows in enumerate(found)]
)
TASKS = st.integers(1, 16)


@settings(max_examples=300)
@given(PIECES, TASKS)
def test_every_moment_of_every_piece_is_dealt_to_one_task(pieces, tasks):
    loads = deal(pieces, tasks)
    ranges = {}
    for piece in (piece for load in loads for piece in load):
        ranges.setdefault(piece.handle, []).append((piece.start, piece.end))
    assert ranges.keys() == {piece.handle for piece in pieces}
    for found in ranges.values():
        found.sort()
        assert found[0][0] == START
        assert found[-1][1] == END
        assert all(low < high for low, high in found)
        assert all(left[1] == right[0] for left, right in pairwise(found))


@settings(max_examples=300)
@given(PIECES, TASKS)
def test_the_load_is_balanced(pieces, tasks):
    loads = deal(pieces, tasks)
    total = sum(piece.rows for piece in pieces)
    assert 1 <= len(loads) <= tasks
    assert len(loads) == max(1, min(tasks, total // _SMALL))
    weights = [sum(piece.rows for piece in load) for load in loads]
    assert max(weights) <= 2 * total / len(loads)


@given(PIECES, TASKS)
def test_dealing_again_gives_the_same_tasks(pieces, tasks):
    assert deal(pieces, tasks) == deal(list(pieces), tasks)


def test_one_wide_file_feeds_all_cores():
    loads = deal([Piece("wide", START, END, 4_000_000)], 4)
    assert [len(load) for load in loads] == [1, 1, 1, 1]


def test_few_rows_are_not_worth_many_tasks():
    pieces = [Piece(f"f{n}", START, END, 10) for n in range(100)]
    assert [len(load) for load in deal(pieces, 8)] == [100]


def test_a_slice_without_rows_is_one_empty_task():
    assert deal([], 8) == [[]]


def test_a_piece_is_not_cut_finer_than_its_width():
    loads = deal([Piece("narrow", 0, 3, 10_000_000)], 16)
    found = sorted((p.start, p.end) for load in loads for p in load)
    assert all(high > low for low, high in found)
    assert (found[0][0], found[-1][1]) == (0, 3)


EXTENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 70_000_000), st.integers(0, 10**7), ROWS),
    max_size=10,
).map(lambda found: [(f"handle of {f}", Extent(f, t, t + w, n, 0)) for f, t, w, n in found])


@settings(max_examples=300)
@given(EXTENTS)
def test_a_file_is_one_piece_of_a_slice_however_many_row_groups_it_has(extents):
    pieces = pieces_of(extents, START, END)
    touched = {f"handle of {e.file}" for _, e in extents if e.first < END and e.last >= START}
    assert Counter(piece.handle for piece in pieces) == Counter(touched)
    assert all(START <= p.start < p.end <= END and p.rows >= 1 for p in pieces)
    by_handle = {piece.handle: piece for piece in pieces}
    for handle, extent in extents:
        if extent.first < END and extent.last >= START:
            assert by_handle[handle].start <= max(extent.first, START)
            assert by_handle[handle].end >= min(extent.end, END)
    assert sum(piece.rows for piece in pieces) <= sum(e.rows for _, e in extents) + len(pieces)


@settings(max_examples=300)
@given(EXTENTS, st.lists(st.integers(START + 1, END - 1), max_size=6, unique=True))
def test_no_slice_misses_a_file_with_rows_in_it(extents, cuts):
    edges = [START, *sorted(cuts), END]
    for low, high in pairwise(edges):
        handles = {piece.handle for piece in pieces_of(extents, low, high)}
        for handle, extent in extents:
            if low <= extent.first < high or low <= extent.last < high:
                assert handle in handles


def test_the_ends_of_an_extent_are_inclusive():
    extents = [("h", Extent("f", 10, 20, 5, 0))]
    assert pieces_of(extents, 0, 10) == []
    assert pieces_of(extents, 0, 11) == [Piece("h", 10, 11, 1)]
    assert pieces_of(extents, 20, 30) == [Piece("h", 20, 21, 1)]
    assert pieces_of(extents, 21, 30) == []


@settings(max_examples=200)
@given(PIECES, TASKS)
def test_whole_pieces_are_dealt_once_and_no_task_has_two_more_than_it_must(pieces, tasks):
    loads = spread(pieces, tasks)
    dealt = [piece for load in loads for piece in load]
    assert sorted(dealt, key=lambda piece: piece.handle) == sorted(pieces, key=lambda p: p.handle)
    assert len(loads) == max(1, min(tasks, len(pieces)))
    weights = [sum(piece.rows for piece in load) for load in loads]
    largest = max((piece.rows for piece in pieces), default=0)
    assert max(weights) - min(weights) <= largest

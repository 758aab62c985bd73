from hypothesis import given
from hypothesis import strategies as st

from tidemill.archive.continuity import Intervals, count

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))),
    max_size=12,
)


def numbers(ranges):
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(RANGES, st.integers(0, 40), st.integers(0, 10))
def test_a_set_of_numbers(ranges, first, width):
    found, model = Intervals(), set()
    for each in ranges:
        assert numbers(found.add(*each)) == model & numbers([each])
        model |= numbers([each])
        assert found.bounds == (min(model), max(model))
    absent = list(found.absent(first, first + width))
    assert numbers(absent) == numbers([(first, first + width)]) - model
    assert count(absent) == len(numbers(absent))
    assert len(found) == sum(1 for number in model if number - 1 not in model)


def test_what_comes_in_order_is_one_range():
    found = Intervals()
    for number in range(1_000):
        assert found.add(number * 3, number * 3 + 2) == []
        assert len(found) == 1
    assert found.add(7, 9) == [(7, 9)]
    assert Intervals().bounds is None

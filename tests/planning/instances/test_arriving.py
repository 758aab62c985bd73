"""Who is in time and who is late, by the definition: could a row of it have been read?"""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.planning.instances.arriving import sort_arrivals
from tidemill.planning.instances.values import Instance

times = st.integers(0, 40)


@given(start=times, length=st.integers(1, 20), read=st.fixed_dictionaries({"a": times, "b": times}),
       skews=st.fixed_dictionaries({"a": st.integers(0, 5), "b": st.integers(0, 5)}),
       lateness=st.integers(0, 9))  # fmt: skip
def test_nobody_is_taken_in_of_whom_a_row_may_have_been_read(start, length, read, skews, lateness):
    found = sort_arrivals([Instance("i", start, start + length)], (), (), read, skews)
    may_be_read = any(
        event - skews[name] <= ingest <= event + lateness and ingest < read[name]
        for name in read
        for event in range(start, start + length)
        for ingest in range(-10, 80)
    )
    assert bool(found.late) == may_be_read
    assert bool(found.in_time) != may_be_read


def test_who_is_known_or_withdrawn_does_not_arrive():
    given = [Instance(n, 10, 20) for n in range(4)]
    found = sort_arrivals(given, {"1"}, {"2"}, {"a": 5}, {"a": 0})
    assert [each.id for each in found.in_time] == [0, 3]
    assert found.late == []

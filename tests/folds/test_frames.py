"""Sorting: one order, whichever way it is done."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidemill.folds.frames import sort_rows

SMALL, WIDE = st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)
COLUMNS = {
    "a": (pl.Int64(), st.one_of(st.none(), SMALL)),
    "b": (pl.Int64(), SMALL),
    "c": (pl.Int64(), WIDE),
    "d": (pl.Datetime("us", "UTC"), SMALL),
    "e": (pl.Int8(), SMALL),
    "f": (pl.String(), st.sampled_from(["", "x", "y"])),
}


@given(st.data())
def test_rows_stand_by_their_columns_and_stay_where_equal(data: st.DataObject) -> None:
    by = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True))
    size = data.draw(st.integers(0, 12))
    values = {
        name: data.draw(st.lists(COLUMNS[name][1], min_size=size, max_size=size)) for name in by
    }
    frame = pl.DataFrame(
        {name: pl.Series(values[name]).cast(COLUMNS[name][0]) for name in by}
    ).with_row_index("place")
    places = sorted(
        range(size),
        key=lambda i: [(values[n][i] is None, values[n][i] or type(values[n][i])()) for n in by],
    )
    assert sort_rows(frame, by)["place"].to_list() == places

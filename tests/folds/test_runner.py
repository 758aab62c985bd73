"""What the runner of folds refuses before it guesses."""

import pyarrow as pa
import pytest

from tidemill.errors import RunError
from tidemill.folds.base import TIME, Input
from tidemill.folds.frames import in_utc
from tidemill.folds.runner import Step
from tidemill.folds.windowed.windows import windows

SCHEMA = pa.schema([("user", pa.int64()), ("at", TIME), ("share", pa.float64())])


def test_state_that_another_version_left_is_refused_by_the_columns_that_differ():
    made = windows(key="user", every="1 h", agg={"s": ("sum", "share")})
    fold = made.bind(Input("windows", SCHEMA, "at"))
    step = Step(fold, "windows", None)
    step._check_columns(fold.state.empty_table())
    at = fold.state.get_field_index("s")
    old = fold.state.set(at, pa.field("s", pa.float64())).empty_table()
    with pytest.raises(RunError, match="has other columns than this version keeps: s") as error:
        step._check_columns(old)
    assert "begin a new run" in error.value.text()


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Europe/Berlin"])
def test_instants_are_the_same_in_every_zone_also_inside_of_values(zone):
    def kinds(name):
        time = pa.timestamp("us", name)
        inner = pa.list_(pa.struct([("t", time), ("n", pa.int64())]))
        return [time, inner, pa.map_(pa.string(), time), pa.timestamp("us"), pa.int64()]

    values = [[0], [[{"t": 0, "n": 1}]], [[("a", 0)]], [0], [1]]
    columns = [pa.array(value, kind) for value, kind in zip(values, kinds(zone), strict=True)]
    found = in_utc(pa.table(columns, names=list("abcde")))
    assert found.schema.types == kinds("UTC")
    assert found["a"].cast(pa.int64()).to_pylist() == [0]
    assert found["b"].to_pylist()[0][0]["t"].timestamp() == 0

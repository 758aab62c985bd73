"""The slicing law for a join as of the row's event time, against Polars' own as-of join."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

import tidemill
from tests.laws.logs import KEYS, SPAN, START, Row, logs, memory_log, on_time, slicings
from tidemill.project import load
from tidemill.testing import assert_same_rows, make_project, replay
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
few = settings(max_examples=1, phases=[Phase.explicit, Phase.generate], database=None)


def after(moment: int) -> int:
    return moment + 1


@st.composite
def versions(draw: st.DrawFn, rows: list[Row]) -> pl.DataFrame:
    """One key has no version; some versions begin exactly when a row happened, or just after."""
    times: dict[int, list[int]] = {}
    for key in range(1, KEYS):
        events = st.sampled_from([row.event for row in rows if row.key == key])
        moments = st.one_of(st.integers(START - SPAN, START + SPAN), events, events.map(after))
        times[key] = [draw(events), *draw(st.lists(moments, max_size=5))]
    found = [(key, from_micros(at)) for key, each in times.items() for at in sorted(set(each))]
    made = [{"key": key, "since": at, "no": number} for number, (key, at) in enumerate(found)]
    schema = {"key": pl.Int64, "since": pl.Datetime("us", "UTC"), "no": pl.Int64}
    return pl.DataFrame(made, schema=schema)


@few
@given(data=st.data())
def test_as_of(spark: "SparkSession", tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(logs())
    table = data.draw(versions(rows))

    def priced(plays: DataFrame, prices: DataFrame) -> DataFrame:
        joined = plays.transform(tidemill.as_of(prices, on="key"))
        return joined.selectExpr("event_ts as t", "key", "amount", "since", "no")

    project = make_project(tmp_path, priced, {"plays": memory_log(rows, files=3)}, time="t")
    pq.write_table(table.to_arrow(), tmp_path / "prices.parquet")
    section = {"type": "parquet", "path": "prices.parquet", "key": "key", "valid_from": "since"}
    told = yaml.safe_load(project.loaded.path.read_text()) | {"tables": {"prices": section}}
    project.loaded.path.write_text(yaml.safe_dump(told))
    found = replay(spark, load(project.loaded.path), data.draw(slicings(rows)))

    kept = pl.from_arrow(memory_log(on_time(rows)).rows)
    assert isinstance(kept, pl.DataFrame)
    expected = kept.sort("event_ts").join_asof(
        table.sort("since"), left_on="event_ts", right_on="since", by="key", coalesce=False
    )
    chosen = expected.select(t="event_ts", key="key", amount="amount", since="since", no="no")
    assert_same_rows(found.output.to_pylist(), chosen.to_dicts())

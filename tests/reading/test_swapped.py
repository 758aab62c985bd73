"""Spark knows sources by their place in the plan: an offset of another source must be refused."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tests.laws.stopping import run_until
from tests.reading.test_route import Run
from tidemill.errors import RunError
from tidemill.reading.datasource import SliceReader
from tidemill.reading.options import SourceOptions
from tidemill.testing import MemoryLog, make_project
from tidemill.types import from_micros, to_micros

START = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
MINUTE = 60_000_000
OF_ADS = {"source": "ads", "frontier": 20_000, "positions": {"0": 17}}
OF_PLAYS = {"source": "plays", "frontier": 40_000}


@pytest.fixture
def reader(tmp_path):
    Run(tmp_path, history=True)
    return SliceReader(SourceOptions(tmp_path, "plays"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.latestOffset(OF_ADS, None),
        lambda reader: reader.partitions(OF_ADS, OF_PLAYS),
        lambda reader: reader.partitions(OF_PLAYS, OF_ADS),
    ],
    ids=["next", "start", "end"],
)
def test_an_offset_of_another_source_is_refused(reader, ask):
    with pytest.raises(RunError, match="gives the source 'plays' an offset of 'ads'") as raised:
        ask(reader)
    assert "restore the code" in raised.value.fix


@pytest.mark.spark
def test_code_that_unites_its_streams_in_another_order_cannot_go_on(spark, tmp_path):
    order = ["plays", "ads"]

    def code(plays, ads):
        frames = {"plays": plays, "ads": ads}
        first, second = (frames[name].select("n", "event_ts") for name in order)
        return first.unionByName(second)

    def log(begin):
        rows = [
            {"n": n, "event_ts": from_micros(at), "ingest_ts": from_micros(at)}
            for n, at in ((n, START + n * MINUTE) for n in range(begin, begin + 60))
        ]
        time = pa.timestamp("us", "UTC")
        schema = pa.schema([("n", pa.int64()), ("event_ts", time), ("ingest_ts", time)])
        return MemoryLog(pa.Table.from_pylist(rows, schema), lateness=timedelta(minutes=1))

    project = make_project(tmp_path, code, {"plays": log(0), "ads": log(30)}, time="event_ts")
    whole = (datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    plan = project.plan("pipeline", *whole, slice="10min", spark=spark)
    run = project.prepare(plan).run
    run_until(project, run, spark, 3)
    order.reverse()
    with pytest.raises(RunError, match="it was: output: stream plays; it is: output: stream ads"):
        project.resume(run, spark=spark)

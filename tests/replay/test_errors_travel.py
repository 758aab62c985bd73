"""Errors of ours come whole out of Spark's processes; those of a user's code stay the user's."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.replay.test_reader_transform import VISITS
from tests.replay.test_sources import T0, events, log, sums, table
from tidemill.errors import RunError, SinkError, SourceError, find_error
from tidemill.project import Progress
from tidemill.reading.datasource import TidemillSource
from tidemill.reading.options import SourceOptions
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import make_project

pytestmark = pytest.mark.spark
RANGE = {"start": T0, "end": T0 + timedelta(days=1)}


def test_an_error_of_a_reader_keeps_where_fix_and_facts(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = events()
    rows[299]["off"] = 10_000
    project = make_project(
        tmp_path, sums, {"plays": log(table(rows), source={"order": "position"})}, time="t"
    )
    with pytest.raises(SourceError, match="ingest time goes backwards") as raised:
        project.backfill("pipeline", spark=spark, slice="1h", **RANGE)  # type: ignore[arg-type]
    error = raised.value
    assert error.where == "stream plays"
    assert error.fix.startswith("order: position needs a log") and "\n" not in error.fix
    assert error.facts["partition"] == 2 and isinstance(error.facts["offset"], int)


def test_an_error_of_a_fold_keeps_where_fix_and_facts(spark: SparkSession, tmp_path: Path) -> None:
    def visits(plays: DataFrame) -> DataFrame:
        return plays.transform(VISITS)

    options = {"time": "session_end", "warm_up": "0 s", "look_ahead": "1 h"}
    project = make_project(tmp_path, visits, {"plays": log(table(events()))}, **options)
    runs: list[str] = []

    def lose_state(progress: Progress) -> None:
        assert progress.batch is not None
        folder = RunFolder.of(project.loaded.home, runs[0])
        for file in (folder.checkpoint / "folds").glob(f"*/{progress.batch.batch:09d}/*.arrow"):
            file.unlink()

    with pytest.raises(RunError, match=r"the fold state .* is missing") as raised:
        project.backfill(
            "pipeline",
            spark=spark,
            slice="1h",
            on_start=lambda manifest: runs.append(manifest.run),
            on_progress=lose_state,
            **RANGE,  # type: ignore[arg-type]
        )
    error = raised.value
    assert error.where == RunFolder.of(project.loaded.home, runs[0]).state
    assert error.fix.startswith(f"tidemill rewind {runs[0]} --to-batch")
    assert error.facts["batch"] == 0 and str(error.facts["state"]).endswith(".arrow")


def test_an_error_of_the_process_that_plans_batches_comes_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(TidemillSource)
    options = SourceOptions(tmp_path / "r1", "plays").to_spark()
    reader = spark.readStream.format("tidemill").options(**options).schema("key long")
    query = reader.load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    error = find_error(str(raised.value))
    assert isinstance(error, RunError)
    assert error.message == "the run r1 has lost its folder"
    assert error.where == str(tmp_path / "r1")
    assert "'tidemill cancel r1'" in error.fix


def test_an_error_of_a_user_s_code_is_told_as_the_user_s(
    spark: SparkSession, tmp_path: Path
) -> None:
    def refuse(amount):  # type: ignore[no-untyped-def]
        raise ValueError(f"no such amount: {amount} 漢字")

    def code(plays: DataFrame) -> DataFrame:
        return plays.select("event_ts", F.udf(refuse, "long")("amount").alias("n"))

    project = make_project(tmp_path, code, {"plays": log(table(events()))}, time="event_ts")
    with pytest.raises(RunError, match=r"the query failed: .*ValueError: no such amount") as raised:
        project.backfill("pipeline", spark=spark, slice="1h", **RANGE)  # type: ignore[arg-type]
    assert "漢字" in raised.value.message and "tidemill-error" not in raised.value.text()


AWKWARD = 'two\nlines, "quotes", \\ and\n\n\tat x.Y(Z)\nCaused by: 漢字 🌊 ' + "long " * 20_000


def test_awkward_texts_come_whole_through_the_jvm(spark: SparkSession) -> None:
    from tidemill.connectors.sinks.writing import RESULT_DDL, BatchWriter

    class Refusing:
        def open(self, name: str) -> None:
            raise SinkError(AWKWARD, where="tab\tle", fix=AWKWARD[::-1], rows=[1, None])

    with pytest.raises(Exception, match="SinkError") as raised:
        spark.range(1).mapInArrow(BatchWriter({"output": Refusing()}), RESULT_DDL).collect()  # type: ignore[dict-item]
    error = find_error(str(raised.value))
    assert isinstance(error, SinkError)
    assert (error.message, error.where, error.fix) == (AWKWARD, "tab\tle", AWKWARD[::-1])
    assert error.facts == {"rows": [1, None]}

"""Interceptors and callbacks in real runs: folds, Spark's own windows, failures and repeats."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import functions as F

import tidemill
from tidemill.errors import RunError
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.project import Until, load
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project, replay
from tidemill.types import to_micros

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(hours=3)
TIME = pa.timestamp("us", "UTC")
COUNT = 120
HOUSE = """
from pathlib import Path

from pyspark.sql import functions as F

HERE = Path(__file__).parent


def mask(place, name, frame):
    if (place, name) == ("source", "plays"):
        return frame.withColumn("who", F.concat(F.lit("#"), "who")).where("who <> '#2'")
    return frame


def tag(place, name, frame):
    if place == "sink":
        return frame.withColumn("tag", F.lit(name))
    return frame


def idle(place, name, frame):
    return frame.select("*")


def note(key, commit):
    with (HERE / "calls").open("a") as file:
        ranges = {name: [str(at) for at in both] for name, both in commit.ranges.items()}
        print([key, commit.batch, commit.repeat, commit.on_time, commit.late, commit.dead,
               dict(commit.written), ranges, commit.run, commit.pipeline], file=file)
    if (HERE / f"fail_{key}_{commit.batch}").exists():
        raise ValueError("the platform says no")


def before(commit):
    note("before", commit)


def after(commit):
    note("after", commit)
"""


def log():
    rows = [
        {
            "who": str(n % 3),
            "event_ts": START + timedelta(minutes=n - (30 if n == 77 else 0)),
            "ingest_ts": START + timedelta(minutes=n),
        }
        for n in range(COUNT)
    ]
    schema = pa.schema([("who", pa.string()), ("event_ts", TIME), ("ingest_ts", TIME)])
    return MemoryLog(pa.Table.from_pylist(rows, schema=schema), lateness=timedelta(minutes=5))


def folded(plays):
    agg = {"n": "count"}
    return plays.transform(tidemill.windows(key="who", every="10 min", agg=agg)).withColumnRenamed(
        "window_start", "t"
    )


def native(plays):
    found = plays.groupBy(F.window("event_ts", "10 minutes").alias("w"), "who").agg(
        F.count("*").alias("n")
    )
    return found.select(F.col("w.start").alias("t"), "who", "n")


def both(plays):
    return {"folded": folded(plays), "native": native(plays)}


def project(folder, code=both, **options):
    time = {"folded": "t", "native": "t"} if code is both else "t"
    made = make_project(folder, code, {"plays": log()}, time=time, **options)
    (folder / "house.py").write_text(HOUSE)
    return made


def expected(tag):
    found = Counter()
    for n in range(COUNT):
        if n != 77 and n % 3 != 2:
            found[(f"#{n % 3}", START + timedelta(minutes=n // 10 * 10))] += 1
    return [{"t": t, "who": who, "n": n, "tag": tag} for (who, t), n in found.items()]


def test_folds_and_spark_s_windows_see_what_interceptors_made_of_the_rows(tmp_path, spark):
    made = project(tmp_path, interceptors=["house:mask", "house:tag"])
    cuts = [[], [START + timedelta(minutes=at) for at in (13, 40, 77, 78, 101)]]
    for boundaries in cuts:
        found = replay(spark, made, boundaries)
        for name in ("folded", "native"):
            rows = found.outputs[name].select(["t", "who", "n", "tag"]).to_pylist()
            assert_same_rows(rows, expected(name), f"{name} with {len(boundaries)} cuts")
        assert len(found.late) == 1


def followed(made, spark, start):
    """A run that goes on over the log's tail until the last windows must be closed."""
    path = made.loaded.path
    told = yaml.safe_load(path.read_text("utf-8"))
    told["streams"]["plays"]["live"] = {"type": "iceberg", "tail": True, "slack": "0 s"}
    path.write_text(yaml.safe_dump(told), "utf-8")
    found, began, beyond = load(path), [], []

    def act(progress):
        beyond.extend([progress.batch.batch] * (progress.batch.frontier > to_micros(END)))
        if len(beyond) > 2:  # Spark's watermark is that of the batch before
            found.stop(began[0])

    options = {"begin": "earliest"} if start is None else {"start": start}
    result = found.run(
        "pipeline",
        spark=spark,
        trigger="200 ms",
        on_start=lambda manifest: began.append(manifest.run),
        on_progress=act,
        until=Until(length="90 s"),
        **options,
    )
    assert len(beyond) > 2
    return collect(found, result)


@pytest.mark.parametrize("start", [None, START], ids=["live", "hybrid"])
def test_live_and_from_history_into_live_interceptors_see_the_same(tmp_path, spark, start):
    made = project(tmp_path, interceptors=["house:mask", "house:tag"])
    found = followed(made, spark, start)
    for name in ("folded", "native"):
        rows = found.outputs[name].select(["t", "who", "n", "tag"]).to_pylist()
        assert_same_rows(rows, expected(name), name)


def test_rows_stay_where_they_are_though_an_interceptor_looked_at_them(tmp_path, spark):
    def code(plays):
        return plays.transform(tidemill.windows(key="who", every="10 min", agg={"n": "count"}))

    made = make_project(tmp_path, code, {"plays": log()}, time="window_start",
                        interceptors=["house:idle"])  # fmt: skip
    (tmp_path / "house.py").write_text(HOUSE)
    found = replay(spark, made, [START + timedelta(minutes=30)])
    manifest = RunFolder.of(made.loaded.home, found.result.run).read_manifest()
    (pin,) = manifest.code.folds.values()
    assert (pin.reads, pin.gives) == ("plays", True)
    counted = Counter((str(n % 3), START + timedelta(minutes=n // 10 * 10))
                      for n in range(COUNT) if n != 77)  # fmt: skip
    rows = {(row["who"], row["window_start"]): row["n"] for row in found.output.to_pylist()}
    assert rows == dict(counted)


def calls(folder):
    path = folder / "calls"
    return [eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_callback_that_fails_stops_the_run_and_is_called_again_as_a_repeat(tmp_path, spark):
    made = project(tmp_path, native, before_commit="house:before", after_commit="house:after")

    def rows(run):
        table = find_table(open_catalog(made.loaded), f"marts.output__{run}")
        return 0 if table is None else len(table.scan().to_arrow())

    (tmp_path / "fail_before_1").touch()
    with pytest.raises(RunError) as raised:
        made.backfill("pipeline", START, START + timedelta(hours=2), slice="1 h", spark=spark)
    (run,) = [record.run for record in made.runs()]
    assert "before_commit house:before failed for batch 1: ValueError: the platform says no; " \
        "nothing of the batch was committed" in raised.value.message  # fmt: skip
    assert "(house.py:" in raised.value.where and f"tidemill resume {run}" in raised.value.fix
    assert made.status(run).state is RunState.FAILED
    first = rows(run)
    assert made.status(run).totals.batches == 1
    (tmp_path / "fail_before_1").unlink()

    (tmp_path / "fail_after_1").touch()
    with pytest.raises(RunError, match=r"after_commit house:after .* the batch is committed"):
        made.resume(run, spark=spark)
    committed = rows(run)
    assert committed > first
    (tmp_path / "fail_after_1").unlink()

    assert made.resume(run, spark=spark).state is RunState.FINISHED
    told = calls(tmp_path)
    assert [(key, batch, repeat) for key, batch, repeat, *_ in told][:8] == [
        ("before", 0, False),
        ("after", 0, False),
        ("before", 1, False),
        ("before", 1, True),
        ("after", 1, False),
        ("before", 1, True),
        ("after", 1, True),
        ("before", 2, False),
    ]
    assert len({str(each[3:]) for each in told if each[1] == 1}) == 1, "a repeat has other numbers"
    totals, once = made.status(run).totals, {each[1]: each for each in told}.values()
    assert sum(each[3] for each in once) == totals.on_time == COUNT - 1
    assert sum(each[4] for each in once) == totals.late == 1
    assert sum(each[6]["output"] for each in once) == totals.out == rows(run)
    assert all(each[8:] == [run, "pipeline"] for each in told)
    assert once and next(iter(once))[7]["plays"][0] < next(iter(once))[7]["plays"][1]

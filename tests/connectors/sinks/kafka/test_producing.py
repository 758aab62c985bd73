"""Outputs into topics, on a real broker: the rows of a table, whatever dies in between."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Message
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.connectors.sinks.kafka.topics import batches, count, headers, read_topic, rows
from tests.kafka.broker import Broker
from tests.live import yard as live_yard
from tests.reliability.scenario import Yard
from tidemill.connectors.sinks.arranging import arrange
from tidemill.connectors.sinks.contract import ROW
from tidemill.connectors.sinks.kafka.producing import TopicTarget
from tidemill.connectors.sinks.kafka.repeats import drop_repeats
from tidemill.connectors.sinks.kafka.topic import SentNote
from tidemill.connectors.sinks.writing import RESULT_DDL, BatchWriter
from tidemill.errors import ConfigError, PlanError, SinkError
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.planning.messages import MessageShape
from tidemill.project import Until
from tidemill.testing import assert_same_rows

pytestmark = pytest.mark.kafka

SECRET = "hunter2-of-the-broker"
START, END, SLICE = "2026-01-01T00:00Z", "2026-01-01T05:00Z", "30min"
KILLED_END = "2026-01-01T02:00Z"
EVERY = '''

@pipeline
def every(playbacks):
    """Each playback as it is."""
    return playbacks.select("account_id", "show_id", "event_ts")
'''


@dataclass(frozen=True)
class Pier(Yard):
    """The starter's project, its pipeline once into a table and once, as ``told``, into a topic."""

    def into(self, broker: Broker, topic: str, pipeline: str = "told", **changes: Any) -> "Pier":
        """Point a pipeline at a topic."""
        path = self.folder / "tidemill.yaml"
        config = yaml.safe_load(path.read_text("utf-8"))
        sink = {
            "type": "kafka", "brokers": broker.brokers, "topic": topic, "key": "show_id",
            "time": "window_start", "options": {"message.timeout.ms": "4000"}, **changes,
        }  # fmt: skip
        entry = {"told": "pipelines:plays_per_show", "every": "pipelines:every"}[pipeline]
        config["pipelines"][pipeline] = {"entry": entry, "sinks": {"output": sink}}
        path.write_text(yaml.safe_dump(config), "utf-8")
        return self

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = find_table(open_catalog(self.project.loaded), table)
        return [] if found is None else list(found.scan().to_arrow().to_pylist())

    def on_time(self, end: str) -> list[dict[str, Any]]:
        """What ``every`` must give, from the log itself."""
        low, high = datetime.fromisoformat(START), datetime.fromisoformat(end)
        return [
            {name: row[name] for name in ("account_id", "show_id", "event_ts")}
            for row in self.rows("events.playbacks")
            if low <= row["event_ts"] < high
            and timedelta(minutes=-1) <= row["ingest_ts"] - row["event_ts"] <= timedelta(minutes=10)
        ]


@pytest.fixture(scope="module")
def pier(tmp_path_factory: pytest.TempPathFactory) -> Pier:
    folder = Pier.make(tmp_path_factory.mktemp("pier")).folder
    code = folder / "pipelines.py"
    code.write_text(code.read_text("utf-8") + EVERY, "utf-8")
    return Pier(folder, "told")


@pytest.fixture(scope="module")
def expected(pier: Pier, spark: Any) -> list[dict[str, Any]]:
    """The rows of the same pipeline in a table."""
    pier.project.backfill(
        "plays_per_show", START, END, slice=SLICE, into="marts.expected", spark=spark
    )
    return pier.rows("marts.expected")


# Without Spark: what a task does


SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int64()), (ROW, pa.int64())])
SHAPE = MessageShape(("id",), "at", ("at", "id"), ("at", "id"), ())


def target(broker: Broker, topic: str, shape: MessageShape = SHAPE, **client: str) -> TopicTarget:
    settings = {"bootstrap.servers": broker.brokers, "message.timeout.ms": "3000", **client}
    return TopicTarget(topic, shape, (100, 1_000), settings, "run_1", 7)


def task(*found: tuple[int, int]) -> pa.RecordBatch:
    """Rows (time, id) as a task gets them."""
    times, ids = zip(*found, strict=True)
    columns = [pa.array(times, pa.int64()).cast(SCHEMA.field("at").type), ids, [0] * len(ids)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def write(destination: TopicTarget, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    found = BatchWriter({"output": destination})(iter(batches))
    return [row for batch in found for row in batch.to_pylist()]


def test_rows_of_the_range_become_messages(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    told = write(target(broker, topic), task((99, 1), (100, 2), (999, 2)), task((1_000, 3)))
    assert sum(row["suppressed"] for row in told) == 2
    assert sum(row["rows"] for row in told) == 2
    first, second = read_topic(broker, topic)
    assert first.key() == b"2"
    assert first.value() == b'{"at":"1970-01-01T00:00:00.000100Z","id":2}'
    assert second.value() == b'{"at":"1970-01-01T00:00:00.000999Z","id":2}'
    assert headers(first).keys() == {"tidemill-run", "tidemill-batch", "tidemill-row"}
    assert headers(first)["tidemill-run"] == "run_1"
    assert headers(first)["tidemill-batch"] == "7"
    assert headers(first)["tidemill-row"] != headers(second)["tidemill-row"]


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "without a key"])
def test_half_a_batch_and_then_all_of_it(broker: Broker, topic: str, key: tuple[str, ...]) -> None:
    """A task that died and ran again: each repeat is where the row was, and is dropped."""
    broker.create_topic(topic, partitions=5)
    where = target(broker, topic, MessageShape(key, "at", ("at", "id"), ("at", "id"), ()))
    found = [(100 + n // 2, n % 7) for n in range(200)] + [(300, 1)] * 3
    write(where, task(*found[:90]))
    write(where, task(*found))
    messages = read_topic(broker, topic)
    assert len(messages) == 90 + 203
    once = list(drop_repeats(messages))
    ids = Counter((json.loads(m.value() or b"")["id"]) for m in once)
    assert ids == Counter(number for _, number in found)
    assert len({m.partition() for m in once}) > 1
    assert write(where.at(8, is_silent=True), task(*found))[0]["rows"] == 203
    assert len(read_topic(broker, topic)) == 293


def test_a_task_that_cannot_deliver_fails_in_our_words(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    where = target(broker, topic, **{"message.timeout.ms": "1500", "message.max.bytes": "1000"})
    schema = SCHEMA.append(pa.field("text", pa.string()))
    large = pa.RecordBatch.from_arrays([*task((100, 1)).columns, ["x" * 2_000]], schema=schema)
    with pytest.raises(SinkError, match="could not be delivered") as raised:
        write(where, large)
    assert raised.value.where == f"topic {topic}"
    assert "a row is too large" in raised.value.fix
    write(where, task((100, 1)))
    broker.stop()
    try:
        with pytest.raises(SinkError) as away:
            write(where, task((101, 1)))
        assert "could not be delivered: Local: Message timed out" in away.value.message
        assert "Connect" in away.value.message, "the client's own words"
    finally:
        broker.start()
    write(target(broker, topic), task((102, 1)))  # a broker just started may take its time
    at = [row["at"][-8:] for row in map(json.loads, (m.value() for m in read_topic(broker, topic)))]
    assert at == [".000100Z", ".000102Z"], "nothing of a failed task is sent later"


# Whole runs


def told_rows(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return rows(drop_repeats(read_topic(broker, topic)))


def in_order(messages: Sequence[Message]) -> bool:
    """Whether within a batch the messages of a key follow the time."""
    last: dict[Any, Any] = {}
    for message, row in zip(messages, rows(messages), strict=True):
        place = message.key(), headers(message)["tidemill-batch"]
        if place in last and row["window_start"] < last[place]:
            return False
        last[place] = row["window_start"]
    return True


SLOWLY = {"queue.buffering.max.messages": "5", "linger.ms": "100"}
"""So slow that a driver can be killed in the middle of a batch."""


@pytest.mark.kill
def test_kills_and_resumes(pier: Pier, broker: Broker, topic: str) -> None:
    """Killed within a batch, then before a batch is noted: without repeats exactly the rows."""
    broker.create_topic(topic, partitions=4)
    pier.into(broker, topic, "every", key=[], time="event_ts", options=SLOWLY)
    known = pier.known_runs()
    span = ("--from", START, "--to", KILLED_END, "--slice", SLICE)
    process = pier.start("backfill", "every", *span, "--into", topic)
    run = pier.newest_run(process, known)
    while count(broker, topic) < 1_000:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.kill()
    process.communicate()
    pier.into(broker, topic, "every", key=[], time="event_ts")
    process = pier.start("resume", run, victim=("write", 2))
    process.communicate(timeout=300)
    assert process.returncode == -9
    pier.run("resume", run)
    messages = read_topic(broker, topic)
    once = list(drop_repeats(messages))
    assert_same_rows(rows(once), pier.on_time(KILLED_END), "the topic after kills")
    assert pier.project.status(run).totals.out == len(once)
    sent, whole = Counter(batches(messages)), Counter(batches(once))
    repeats = sent - whole
    assert 0 < repeats[0] < whole[0], "the first kill was within a batch"
    assert repeats == {0: repeats[0], 2: whole[2]}


@pytest.mark.spark
def test_a_batch_whose_end_is_noted_is_not_written_again(
    tmp_path: Path, broker: Broker, topic: str, spark: Any
) -> None:
    broker.create_topic(topic)
    where = replace(target(broker, topic), range=None)
    frame = spark.range(50).select(
        F.timestamp_millis("id").alias("at"), (F.col("id") % 5).alias("id")
    )
    for batch, noted, total in ((0, True, 50), (0, True, 50), (1, False, 100), (1, False, 150)):
        note = SentNote(tmp_path)
        made = arrange(frame, {"output": where.shape}, 2)
        to = BatchWriter({"output": where.at(batch, note.sent() >= batch)})
        told = made.mapInArrow(to, RESULT_DDL).collect()
        assert sum(row["rows"] for row in told) == 50
        if noted:
            note.note(batch)
        assert count(broker, topic) == total
    assert len(list(drop_repeats(read_topic(broker, topic)))) == 100


@pytest.mark.spark
def test_a_topic_gets_the_rows_of_the_table(
    pier: Pier, broker: Broker, topic: str, expected: list[dict[str, Any]], spark: Any
) -> None:
    broker.create_topic(topic, partitions=4)
    expect = {"rows": "> 0", "unique": ["show_id", "window_start"]}
    project = pier.into(broker, f"{topic}-live", expect=expect).project
    result = project.backfill("told", START, END, slice=SLICE, into=topic, spark=spark)
    messages = read_topic(broker, topic)
    assert_same_rows(rows(messages), expected, "the topic and the table")
    assert {headers(m)["tidemill-run"] for m in messages} == {result.run}
    keys = [str(row["show_id"]).encode() for row in rows(messages)]
    assert keys == [message.key() for message in messages]
    assert in_order(messages)
    assert len({m.partition() for m in messages}) > 1
    assert result.outputs == {"output": f"kafka:{topic}"}
    assert result.late == f"tidemill.told__{topic.replace('.', '_')}__late"
    assert result.totals.out == len(expected)
    assert [(verdict.is_kept, verdict.found) for verdict in result.expectations] == [
        (True, f"{len(expected):,} rows"),
        (None, "its rows cannot be read back"),
    ]
    late = pier.rows(result.late)
    assert result.totals.late >= len(late) > 0, "the look-ahead has late rows of its own"
    assert all(row["ingest_time"] < datetime.fromisoformat(END) for row in late)


@pytest.mark.spark
def test_a_broker_that_goes_away(
    pier: Pier, broker: Broker, topic: str, expected: list[dict[str, Any]], spark: Any
) -> None:
    broker.create_topic(topic, partitions=4)
    project = pier.into(broker, topic).project

    def stop_after_some(progress: Any) -> None:
        if progress.totals.batches == 4:
            broker.stop()

    runs = pier.known_runs()
    try:
        with pytest.raises(SinkError) as raised:
            project.backfill(
                "told", START, END, slice=SLICE, into=topic, spark=spark,
                on_progress=stop_after_some,
            )  # fmt: skip
        assert "messages could not be delivered" in raised.value.message
        assert "tidemill resume" in raised.value.fix
        (run,) = pier.known_runs() - runs
        assert project.status(run).state == "failed"
        assert f"topic {topic}" in (project.status(run).error or "")
        began = time.monotonic()
        with pytest.raises(SinkError, match="the brokers do not answer"):
            project.resume(run, spark=spark)
        assert time.monotonic() - began < 20
    finally:
        broker.start()
    project.resume(run, spark=spark)
    assert_same_rows(told_rows(broker, topic), expected, "after the broker came back")


@pytest.mark.spark
def test_secrets_stay_in_memory(
    pier: Pier, broker: Broker, topic: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_KEY", SECRET)
    broker.create_topic(topic)
    options = {"sasl.password": "${BROKER_KEY}", "sasl.username": "anna-who-writes"}
    project = pier.into(broker, topic, options=options).project
    result = project.backfill(
        "told", START, "2026-01-01T02:00Z", slice=SLICE, into=topic, spark=spark
    )
    assert result.totals.out > 0
    kept = pier.folder / ".tidemill" / "runs" / result.run
    manifest = json.loads((kept / "manifest.json").read_text("utf-8"))
    pin = manifest["outputs"]["sinks"]["output"]
    assert (pin["kind"], pin["own"]["target"]) == ("kafka", topic)
    said = json.dumps(result.to_json())
    files = [path for path in pier.folder.rglob("*") if path.is_file()]
    for secret in (SECRET, "anna-who-writes"):
        assert secret not in said
        leaking = [path for path in files if secret.encode() in path.read_bytes()]
        assert [path for path in leaking if path.name != "tidemill.yaml"] == []
    assert json.loads((kept / "topics.json").read_text("utf-8"))["batch"] > 0


@pytest.mark.spark
def test_what_is_refused_before_anything_runs(
    pier: Pier, broker: Broker, topic: str, spark: Any
) -> None:
    project = pier.into(broker, topic).project
    plan = project.plan("told", START, END, spark=spark)
    assert plan.rows > 0
    with pytest.raises(PlanError) as raised:
        project.backfill("told", START, END, spark=spark)
    assert "a backfill writes into a shadow" in raised.value.message
    assert raised.value.fix == "name a topic for the rows of this backfill: --into TOPIC"
    with pytest.raises(PlanError, match="cannot be a topic's name"):
        project.backfill("told", START, END, into="no such/topic", spark=spark)
    with pytest.raises(SinkError, match="does not exist") as missing:
        project.backfill("told", START, END, into=topic, spark=spark)
    assert "create it" in missing.value.fix
    wrong = pier.into(broker, topic, options={"lingr.ms": "5"}).project
    with pytest.raises(ConfigError, match=r"refuses its settings: .*lingr"):
        wrong.backfill("told", START, END, into=topic, spark=spark)
    without = pier.into(broker, topic, key="seconds_").project
    with pytest.raises(PlanError, match="names the column 'seconds_', which its output lacks"):
        without.plan("told", START, END, spark=spark)


# Live, into tables and topics at once


def told(plays: DataFrame) -> dict[str, DataFrame]:
    """Counts in a table and, with a mean, in a topic; every play in another, without a key."""
    counts = live_yard.counted(plays)
    means = counts.withColumn("mean", F.col("sum") / F.lit(3.0))
    return {"kept": counts, "means": means, "every": plays.select("show", "n", "event_ts")}


@pytest.fixture
def quay(tmp_path: Path, broker: Broker, topic: str, spark: Any) -> Iterator[live_yard.Yard]:
    """A live log, and a pipeline into a table and two topics."""
    made = live_yard.Yard(tmp_path, broker, topic, spark)
    code = (tmp_path / "pipelines.py").read_text("utf-8")
    told = f"from {__name__} import told as rows\ntold = pipeline(rows)\n"
    (tmp_path / "pipelines.py").write_text(f"{code}\n{told}", "utf-8")
    config = yaml.safe_load((tmp_path / "tidemill.yaml").read_text("utf-8"))
    kafka = {"type": "kafka", "brokers": broker.brokers}
    config["pipelines"]["told"] = {
        **config["pipelines"]["counted"],
        "entry": "pipelines:told",
        "expect": {"late": "= 0", "rows": "> 0"},
        "sinks": {
            "means": {**kafka, "topic": f"{topic}-means", "key": ["show"], "time": "window_start"},
            "kept": {"table": "marts.kept", "time": "window_start"},
            "every": {**kafka, "topic": f"{topic}-every", "time": "event_ts"},
        },
    }
    (tmp_path / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    for name in (topic, f"{topic}-means", f"{topic}-every"):
        broker.create_topic(name, partitions=3)
    yield made


@pytest.mark.spark
def test_tables_and_topics_of_one_live_run(quay: live_yard.Yard, broker: Broker) -> None:
    topic, project = quay.topic, quay.project
    quay.produce(1, 150, 3)
    at = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    twin = json.dumps({"show": 1, "n": 0, "event_ts": at}).encode()
    broker.produce(topic, [(number % 3, None, twin) for number in range(20)])
    closing = Until(moment=datetime.now(UTC) + timedelta(seconds=8))
    result = project.run("told", begin="earliest", until=closing, spark=quay.spark)
    assert result.late == "tidemill.told__late"
    assert result.totals.late > 0 and result.totals.dead > 0
    assert len(quay.rows(result.late)) == result.totals.late
    means, every = read_topic(broker, f"{topic}-means"), read_topic(broker, f"{topic}-every")
    assert list(map(id, drop_repeats(means))) == list(map(id, means)), "nothing was repeated"
    kept = quay.rows("marts.kept")
    assert kept
    assert_same_rows(
        [{name: row[name] for name in row if name != "mean"} for row in rows(means)],
        kept,
        "the topic and the table of one run",
    )
    assert all(row["mean"] == row["sum"] / 3.0 for row in rows(means))
    assert in_order(means)
    assert len(list(drop_repeats(every))) == len(every) == result.totals.on_time
    assert sum(row == rows(every)[-1] or row["n"] == 0 for row in rows(every)) >= 20
    assert {m.key() for m in every} == {None}
    assert len({m.partition() for m in every}) == 3
    assert result.totals.out == len(kept) + len(means) + len(every)
    assert [verdict.is_kept for verdict in result.expectations] == [False, None, None, None]
    assert f"({result.totals.late:,} of {result.totals.read:,} rows)" in result.broken[0].found


@pytest.mark.spark
def test_a_pipeline_that_would_read_what_it_writes(quay: live_yard.Yard) -> None:
    path = quay.folder / "tidemill.yaml"
    path.write_text(path.read_text("utf-8").replace(f"{quay.topic}-means", quay.topic), "utf-8")
    with pytest.raises(PlanError, match=r"from which its source '.*' is read"):
        quay.project.run("told", begin="earliest", spark=quay.spark)


@pytest.mark.spark
def test_into_names_one_topic_of_two(quay: live_yard.Yard) -> None:
    with pytest.raises(PlanError, match="--into names one topic, the pipeline writes 2"):
        quay.project.run("told", begin="earliest", into="other", spark=quay.spark)

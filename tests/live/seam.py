"""From history into live, disturbed: what a seed chooses, how it is played, what must come out.

The oracle is plain Python over the log itself: it knows nothing of slices, archives or seams.
"""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from tests.kafka.broker import Broker
from tests.live.victim import COMMIT_STEPS, Victims
from tests.live.yard import Yard, cut
from tests.reliability.standby import Standby
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.project import RunResult
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.phases import HistoryPhases, read_phases
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros, to_micros

LATENESS, SKEW, SIZE = timedelta(seconds=2), timedelta(seconds=1), timedelta(seconds=2)
HYBRID, AGAIN = "marts.hybrid", "marts.again"
AWAY = "away at the switch"
_PATIENCE = 150.0
_COLUMNS = ("show", "window_start", "plays", "sum")


@dataclass(frozen=True)
class Scenario:
    """What a seed chooses."""

    seed: int
    pipeline: str  # a fold, or Spark's own window
    weights: tuple[int, ...]  # of the partitions; one of 0 stays empty
    archive: str  # at the head: nothing is left for live; behind; growing while history is read
    kills: tuple[str, ...]  # where the driver dies, in turn
    broker: str  # what happens to it: when the run wants to switch, or while it is live
    max_rows: int  # in a live slice
    share: float  # of the history lies before --from

    @classmethod
    def of(cls, seed: int) -> "Scenario":
        chance = random.Random(seed)
        archive = chance.choice(["at the head", "behind", "growing"])
        before = ["history 0", "history 1", "before the switch"]
        if archive == "growing":
            before += ["before the extension", "after the extension"]
        during = ["after the switch", f"{chance.random():.2f} s after the switch"]
        during += [f"live 0: {step}" for step in COMMIT_STEPS]
        after = [f"live {chance.randint(1, 4)}: {chance.choice(COMMIT_STEPS)}"]
        stages = sorted(chance.sample([0, 1, 2], chance.choices([1, 2, 3], [5, 2, 1])[0]))
        return cls(
            seed=seed,
            pipeline=("counted", "native")[seed % 2],
            weights=chance.choice([(1,), (1, 1), (20, 1), (3, 0, 1), (1, 8, 0), (0, 5, 1, 1)]),
            archive=archive,
            kills=tuple(chance.choice((before, during, after)[stage]) for stage in stages),
            broker=chance.choice(
                ["left alone", "restarted", "killed", *([AWAY] if archive != "growing" else [])]
            ),
            max_rows=chance.choice([60, 500_000]),
            share=chance.random() * 0.8,
        )

    def __str__(self) -> str:
        parts = "/".join(map(str, self.weights))
        return (
            f"{self.pipeline}; partitions {parts}; archive {self.archive}; "
            f"killed {', '.join(self.kills)}; broker {self.broker}; slices of {self.max_rows}"
        )


class SeamYard(Yard):
    """The yard with little lateness, so that windows close soon."""

    def __init__(self, folder: Path, broker: Broker, topic: str, spark: SparkSession) -> None:
        super().__init__(folder, broker, topic, spark, slack="500 ms")
        self.set("1 min", 500_000)

    def set(self, max_misalignment: str, max_rows: int) -> None:
        """How history and the live log are cut by what is planned from now on."""
        path = self.folder / "tidemill.yaml"
        config = yaml.safe_load(path.read_text("utf-8"))
        plays = config["streams"]["plays"]
        plays |= {"lateness": "2 s", "skew": "1 s", "live": {**plays["live"], "max_rows": max_rows}}
        for pipeline in config["pipelines"].values():
            pipeline["max_misalignment"] = max_misalignment
        path.write_text(yaml.safe_dump(config), "utf-8")


class Production:
    """Writes bursts to the topic in the background. What the log has in the end is the truth."""

    def __init__(self, yard: Yard, scenario: Scenario) -> None:
        self.yard, self.weights = yard, scenario.weights
        self.chance = random.Random(scenario.seed + 1)
        self.number = 0
        self._thread: threading.Thread | None = None

    def go_on(self, bursts: int) -> None:
        """So many more, after those that are on their way."""
        self.hold()
        self._thread = threading.Thread(target=self._work, args=(bursts,), daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Returns when nothing is on its way."""
        if self._thread is not None:
            self._thread.join()

    def _work(self, bursts: int) -> None:
        for _ in range(bursts):
            rows = [self._row() for _ in range(self.chance.choice([1, 5, 40]))]
            try:
                self.yard.broker.produce(self.yard.topic, rows)
            except (KafkaException, TimeoutError):
                time.sleep(0.1)  # the broker is away; whether the rows came, the log will tell
            time.sleep(self.chance.random() * 0.4)

    def _row(self) -> tuple[int, None, bytes]:
        partition = self.chance.choices(range(len(self.weights)), self.weights)[0]
        self.number += 1
        if self.chance.random() < 0.03:
            return partition, None, self.chance.choice([b"not json", b'{"show": 1}'])
        delay = self.chance.choice([0.0, 0.1, 0.3, 0.6, 1.0, 1.8, 2.5, 6.0, -0.6, -3.0])
        at = datetime.now(UTC) - timedelta(seconds=delay)
        record = {"show": self.chance.randrange(4), "n": self.number, "event_ts": at.isoformat()}
        return partition, None, json.dumps(record).encode()


@dataclass(frozen=True)
class Record:
    """One record of the log as plain Python sees it."""

    partition: int
    offset: int
    ingest: int
    verdict: str  # on time, late, future, dead
    event: int = 0
    show: int = 0
    n: int = 0


def read_log(yard: Yard) -> list[Record]:
    """All records, judged one by one."""
    consumer = Consumer({"bootstrap.servers": yard.broker.brokers, "group.id": "oracle"})
    found: list[Record] = []
    try:
        for number in consumer.list_topics(yard.topic).topics[yard.topic].partitions:
            place = TopicPartition(yard.topic, number, 0)
            _, high = consumer.get_watermark_offsets(place)
            consumer.assign([place])
            newest, at = 0, 0
            while at < high:
                for message in consumer.consume(1_000, 1.0):
                    assert message.error() is None
                    at = (message.offset() or 0) + 1
                    newest = max(newest, message.timestamp()[1])
                    found.append(_judged(number, at - 1, newest * 1_000, message.value() or b""))
    finally:
        consumer.close()
    return found


def _judged(partition: int, offset: int, ingest: int, value: bytes) -> Record:
    try:
        record = json.loads(value)
        event = to_micros(datetime.fromisoformat(record["event_ts"]))
    except (ValueError, KeyError):
        return Record(partition, offset, ingest, "dead")
    delay = timedelta(microseconds=ingest - event)
    verdict = "late" if delay > LATENESS else "future" if -delay > SKEW else "on time"
    return Record(partition, offset, ingest, verdict, event, record["show"], record["n"])


def count(records: list[Record], start: datetime, end: datetime) -> list[dict[str, Any]]:
    """The windows with a start in ``[start, end)``."""
    size = SIZE // timedelta(microseconds=1)
    plays, sums = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for record in records:
        if record.verdict == "on time":
            window = (record.show, record.event // size * size)
            plays[window] += 1
            sums[window] += record.n
    made = [
        {"show": show, "window_start": from_micros(at), "plays": n, "sum": sums[(show, at)]}
        for (show, at), n in plays.items()
    ]
    return cut(made, start, end, "window_start")


@dataclass
class Play:
    """One scenario on a topic of its own."""

    scenario: Scenario
    yard: SeamYard
    victims: Victims
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._killed, self._is_over = 0, False
        self._begun: int | None = None  # batches, when the driver that shall live began
        self._victim: Standby | None = None
        self._answer: dict[str, Any] | None = None
        self._run = ""
        self._clock = time.monotonic()

    def _note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._clock:.0f} s {what}")

    def play(self) -> RunResult:
        """Disturb one hybrid run; it is stopped cleanly in the end."""
        try:
            return self._play()
        except BaseException:
            self._is_over = True
            if self._victim is not None:
                self._victim.end()
            raise

    def _play(self) -> RunResult:
        scenario, yard = self.scenario, self.yard
        self.victims.prepare(len(scenario.kills) + 1)
        yard.broker.create_topic(yard.topic, partitions=len(scenario.weights))
        production = Production(yard, scenario)
        manifest = self._prepare(production)
        self._run = manifest.run
        if scenario.broker == AWAY:
            production.hold()
            yard.broker.kill()
        driving = threading.Thread(target=self._drive, daemon=True)
        driving.start()
        if scenario.broker == AWAY:
            self._await(self._is_waiting, "the log to be missed")
            yard.broker.start()
        if scenario.archive == "growing":
            yard.run_archive()
        self._await(lambda: self._history.is_live, "the switch")
        production.go_on(8)
        self._await(self._is_settled, "the last kill, and live batches after it")
        production.go_on(8)
        self._disturb_broker()
        production.hold()
        goal = to_micros(datetime.now(UTC) + LATENESS + SIZE)
        self._await(lambda: self._frontier >= goal, "the windows to close")
        yard.project.stop(self._run)
        driving.join(_PATIENCE)
        self._note("stopped")
        assert self._answer is not None and self._answer["state"] == "stopped", self._answer
        assert self._killed == len(scenario.kills), f"not killed: {scenario.kills}"
        return yard.project.status(self._run)

    def _prepare(self, production: Production) -> Manifest:
        """A piece of history in the archive, a plan that pins it, and what comes after."""
        yard, behind = self.yard, self.scenario.archive
        began = datetime.now(UTC)
        production.go_on(12)
        production.hold()
        ended = datetime.now(UTC)
        self._note("history is produced")
        if behind != "at the head":
            production.go_on(8)
        yard.run_archive()
        self._note("archived")
        start = began + (ended - began) * self.scenario.share
        yard.set("6 s" if behind == "growing" else "1 min", self.scenario.max_rows)
        plan = yard.project.plan_run(
            self.scenario.pipeline, start, into=HYBRID, slice="2 s", spark=yard.spark
        )
        manifest = yard.project.prepare(plan)
        yard.set("1 min", 500_000)
        self._note("planned")
        if behind == "growing":
            production.go_on(8)
            time.sleep(5.0)  # it grows beyond max_misalignment
            yard.run_archive()
            self._note("archived again")
        return manifest

    def _drive(self) -> None:
        """One driver after the other, until one is not killed."""
        for place in (*self.scenario.kills, ""):
            self._victim = victim = self.victims.take()
            if not place:
                self._begun = self.yard.project.registry.totals(self._run).batches
            config = str(self.yard.folder / "tidemill.yaml")
            victim.tell(config=config, run=self._run, die=place)
            self._answer = victim.answer(_PATIENCE * 2)
            if self._is_over:
                return
            if self._answer is not None:
                self._victim = None
                self.victims.give_back(victim)
                return
            assert victim.process.wait(10) == -9
            self._killed += 1
            self._note(f"killed {place}")

    def _disturb_broker(self) -> None:
        if self.scenario.broker == "killed":
            self.yard.broker.kill()
            self.yard.broker.start()
        elif self.scenario.broker == "restarted":
            self.yard.broker.restart()

    def _is_waiting(self) -> bool:
        """History is read, and `status` says what the run waits for. Or it was killed before."""
        phase = self.yard.project.status(self._run).phase
        lag = phase.lags.get("plays") if phase else None
        return lag is not None and lag.waiting is not None

    @cached_property
    def manifest(self) -> Manifest:
        return RunFolder.of(self.yard.project.loaded.home, self._run).read_manifest()

    @property
    def _history(self) -> HistoryPhases:
        folder = RunFolder.of(self.yard.project.loaded.home, self._run)
        return read_phases(folder.path, self.manifest)

    @property
    def _frontier(self) -> int:
        return self.yard.project.registry.totals(self._run).frontier or 0

    def _is_settled(self) -> bool:
        batches = self.yard.project.registry.totals(self._run).batches
        return self._begun is not None and batches >= self._begun + 2

    def _await(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not is_done():
            assert self._answer is None, f"while waiting for {what}: {self._answer}"
            assert time.monotonic() < deadline, f"waited {_PATIENCE:.0f} s for {what}"
            time.sleep(0.1)
        self._note(what)

    def check(self, result: RunResult) -> None:
        """Equal to a plain count over the log, and to a backfill of the whole archive."""
        log = read_log(self.yard)
        assert result.totals.frontier is not None
        low, high = self.manifest.times.boundaries[0], result.totals.frontier
        start = from_micros(self.manifest.times.output[0])
        closed = from_micros(high) - LATENESS - SIZE
        found = cut(self._rows(HYBRID), start, closed, "window_start")
        expected = count(log, start, closed)
        assert len(expected) > 10
        assert_same_rows([_part(row) for row in found], expected, "hybrid and a plain count")
        read = [record for record in log if low <= record.ingest < high]
        assert result.totals.read == len(read)
        aside = {side: self._rows(f"{HYBRID}__{side}") for side in ("late", "dead")}
        for side, verdicts in (("late", ("late", "future")), ("dead", ("dead",))):
            assert_same_rows(
                [{"partition": row["partition"], "offset": row["offset"]} for row in aside[side]],
                [
                    {"partition": record.partition, "offset": record.offset}
                    for record in read
                    if record.verdict in verdicts and record.ingest >= to_micros(start)
                ],
                f"{side} rows of hybrid and of a plain count",
            )
        self._check_backfill(found, aside, start, closed)

    def _check_backfill(
        self,
        found: list[dict[str, Any]],
        aside: dict[str, list[dict[str, Any]]],
        start: datetime,
        closed: datetime,
    ) -> None:
        """The archive, when it has all, gives the same: also the raw bytes of dead rows."""
        yard, name = self.yard, self.scenario.pipeline
        yard.run_archive()
        again = yard.project.backfill(name, start, closed, into=AGAIN, spark=yard.spark)
        assert_same_rows(self._rows(AGAIN), found, "backfill and hybrid")
        other = RunFolder.of(yard.project.loaded.home, again.run).read_manifest()
        low = from_micros(max(self.manifest.times.output[0], other.times.output[0]))
        high = min(closed, from_micros(other.times.boundaries[-1]))
        for side in ("late", "dead"):
            assert_same_rows(
                cut(self._rows(f"{AGAIN}__{side}"), low, high, "ingest_time"),
                cut(aside[side], low, high, "ingest_time"),
                f"{side} rows of backfill and hybrid",
            )

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows; no file of it may be there twice."""
        table = find_table(open_catalog(self.yard.project.loaded), name)
        if table is None:  # one of late or dead rows is made with its first row
            return []
        files = [task.file.file_path for task in table.scan().plan_files()]
        assert len(files) == len(set(files)), f"{name} refers to a file twice"
        return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def _part(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _COLUMNS}

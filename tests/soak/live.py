"""Thousands of live batches with Spark and Kafka: a fold over a topic that never falls silent."""

import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from pyspark.sql import SparkSession

from tests.kafka.broker import Broker
from tests.live.yard import Yard
from tests.soak.bookkeeping import counted_queries
from tests.soak.tenths import Tenths, count_files
from tidemill.planning.manifest import Manifest
from tidemill.project import RunResult, Until
from tidemill.runtime.reports.results import Progress

_PIPELINE = "counted"
_PACE = "500 ms"
"""Slower than a batch, so that it is steady: a table keeps as many files as come in a minute."""
_LOOKS = 50
"""How often memory and files are looked at."""


@dataclass
class _Watch:
    """Notes what every batch took."""

    yard: Yard
    found: Tenths
    queries: list[int]
    asked: int = 0
    run: str = ""

    def start(self, manifest: Manifest) -> None:
        self.run = manifest.run

    def note(self, progress: Progress) -> None:
        number = progress.batch.batch
        tenth = self.found.of(number)
        if number > 1:  # the first one starts Python processes
            tenth.seconds.append(self._worked())
            tenth.queries += self.queries[0] - self.asked
        if number % max(1, self.found.batches // _LOOKS) == 0:
            tenth.memory = max(tenth.memory, self._memory())
            tenth.files = max(tenth.files, self._files())
        if number + 1 == self.found.batches:
            self.yard.project.stop(self.run)
        self.asked = self.queries[0]

    def _worked(self) -> float:
        """Seconds of work in the batch before this one, as Spark counts them.

        Batches come at a steady pace, so the time between two of them would say nothing.
        """
        assert self.yard.spark is not None
        (query,) = self.yard.spark.streams.active
        assert query.lastProgress is not None
        return float(query.lastProgress.durationMs["triggerExecution"]) / 1_000

    def _memory(self) -> int:
        """What the driver's Python holds, and what is left in the JVM's heap after a collection."""
        assert self.yard.spark is not None
        runtime = self.yard.spark._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        heap = runtime.totalMemory() - runtime.freeMemory()
        return int(heap + psutil.Process().memory_info().rss)

    def _files(self) -> int:
        """Those of the run's folder and of the tables' metadata; data files are the product.

        Without those that are on the list to be deleted in time: how many these are follows from
        how fast batches come, not from how many there were.
        """
        home = self.yard.project.loaded.home
        noted = {
            line.removeprefix("file://")
            for page in home.glob("waste/*/*.txt")
            for line in page.read_text("utf-8").splitlines()
        }
        left = sum(1 for path in noted if Path(path).exists())
        return count_files([home / "runs" / self.run, *home.rglob("metadata")]) - left


def soak_live(
    folder: Path, broker: Broker, spark: SparkSession, batches: int
) -> tuple[Tenths, RunResult]:
    """A live run of so many batches; nothing that was produced may be missing."""
    topic = f"soak-{batches}"
    broker.create_topic(topic, partitions=2)
    yard, done = Yard(folder, broker, topic, spark), threading.Event()
    config = yaml.safe_load((folder / "tidemill.yaml").read_text("utf-8"))
    config["keep_snapshots"] = "1 min"  # so that the files of old snapshots go while we look
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    made = [0]

    def chatter() -> None:
        while not done.wait(0.25):
            yard.produce(made[0], 5, 2)
            made[0] += 5

    talk = threading.Thread(target=chatter, daemon=True)
    talk.start()
    try:
        with counted_queries() as queries:
            watch = _Watch(yard, Tenths(batches), queries)
            yard.project.run(
                _PIPELINE, begin="earliest", trigger=_PACE, until=Until(length="4 h"),
                spark=spark, on_start=watch.start, on_progress=watch.note,
            )  # fmt: skip
    finally:
        done.set()
        talk.join()
    result = yard.project.resume(watch.run, until=Until(caught_up=True), spark=spark)
    assert result.totals.read == made[0], f"{result.totals.read} of {made[0]} rows were read"
    return watch.found, result

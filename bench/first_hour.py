"""The first hour of a newcomer: the project of `tidemill init`, planned and backfilled.

Each contestant runs in a process of its own (``python -m bench.first_hour NAME``) and prints one
JSON object with seconds. Commands are timed from outside, as a person at a terminal would.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.data import CACHE, table_files
from tidemill.project import Project, load

PIPELINE = "plays_per_show"
START, END = "2026-01-01T00:00Z", "2026-01-02T00:00Z"
_ASKED = (PIPELINE, "--from", START, "--to", END)
_SLICE = "29m"  # so wide that the day and its look-ahead are 51 slices
_CODE = ".tidemill/analysis"
_LINES = {"starting Spark": "first line", "slice 1/": "reading", "100%": "slice done"}
"""What a line of progress has in it, and what it is called here."""


def command(*arguments: str) -> list[str]:
    """A command of Tidemill's."""
    return [sys.executable, "-m", "tidemill.cli", *arguments]


def starter() -> Path:
    """The project that `tidemill init` writes, made once."""
    folder = CACHE / "starter"
    if not (folder / "tidemill.yaml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(command("init"), cwd=folder, check=True, capture_output=True)
    return folder


def init_backfill() -> dict[str, Any]:
    """`tidemill backfill` of the day, and when its lines of progress are to be seen."""
    began, seen = time.monotonic(), dict[str, float]()
    with subprocess.Popen(
        command("backfill", *_ASKED),
        cwd=starter(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            for text, name in _LINES.items():
                if text in line:
                    seen.setdefault(name, time.monotonic() - began)
    if process.returncode:
        raise SystemExit("".join(told))
    return {"seconds": time.monotonic() - began, **seen}


def timed(*arguments: str) -> dict[str, Any]:
    """The seconds of a command."""
    began = time.monotonic()
    subprocess.run(command(*arguments), cwd=starter(), check=True, capture_output=True)
    return {"seconds": time.monotonic() - began}


def plan_unknown() -> dict[str, Any]:
    """`tidemill plan` of code that was not analysed yet."""
    shutil.rmtree(starter() / _CODE, ignore_errors=True)
    return timed("plan", *_ASKED)


def plan_known() -> dict[str, Any]:
    """`tidemill plan` of code that was planned before."""
    timed("plan", *_ASKED)
    return timed("plan", *_ASKED)


BARE = """
import sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
(
    spark.read.parquet(*sys.argv[2:])
    .where("event_ts >= ingest_ts - interval 10 minutes")
    .where("event_ts <= ingest_ts + interval 1 minute")
    .groupBy(F.window("event_ts", "10 minutes"), "show_id")
    .agg(F.count("*").alias("plays"), F.sum("seconds").alias("seconds"))
    .select(F.col("window.start").alias("window_start"), "show_id", "plays", "seconds")
    .write.mode("overwrite").parquet(sys.argv[1])
)
spark.stop()
"""
"""What somebody would write instead: start a session, count the same windows, write a table."""


def bare() -> dict[str, Any]:
    """The bare script over the same files."""
    folder = starter()
    files = table_files(load(folder / "tidemill.yaml"), "events.playbacks")
    out = str(CACHE / "starter-bare")
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", BARE, out, *files], check=True, capture_output=True)
    return {"seconds": time.monotonic() - began}


class Clock:
    """Seconds that the parts of a batch take, by part; calls inside of another count there."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}

    def __call__(self, kind: type, method: str, part: str) -> None:
        """Count the time of a method from now on."""
        inner = getattr(kind, method)

        def timed(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(*given, **named)
            finally:
                self.parts.setdefault(part, []).append(time.perf_counter() - began)

        setattr(kind, method, timed)


_OURS = {
    "_write": "tasks",
    "_side": "side files read",
    "_sync": "log entries on the disk",
    "_commit_outputs": "commit of the output",
    "_commit_aside": "commit of late and dead rows",
}
_THEIRS = {
    "latestOffset": "next slice",
    "walCommit": "offset log entry",
    "getBatch": "batch built",
    "queryPlanning": "plan",
    "commitOffsets": "commit log entry",
    "triggerExecution": "batch",
    "addBatch": "batch run",
}


def batches() -> dict[str, Any]:
    """A backfill of the day in 51 small slices: seconds per batch, median, and its parts."""
    from tidemill.runtime.driving.committer import Committer
    from tidemill.runtime.driving.driver import Driver
    from tidemill.runtime.registry import Registry

    clock = Clock()
    for method, part in _OURS.items():
        clock(Committer, method, part)
    clock(Registry, "record_batch", "registry")
    clock(Driver, "_handle", "our code")
    project, queries, ends = load(starter() / "tidemill.yaml"), dict[str, Any](), list[float]()
    with session(project) as spark:

        def note(_: Any) -> None:
            ends.append(time.perf_counter())
            queries.update((query.id, query) for query in spark.streams.active)

        began = time.monotonic()
        project.backfill(PIPELINE, START, END, slice=_SLICE, spark=spark, on_progress=note)
        seconds = time.monotonic() - began
        (query,) = queries.values()
        told = [progress.durationMs for progress in query.recentProgress]
    steady = [later - before for before, later in pairwise(ends[5:])]
    found = {part: statistics.median(values[5:]) for part, values in clock.parts.items()}
    for key, part in _THEIRS.items():
        found[part] = statistics.median(each.get(key, 0) / 1000 for each in told[5:])
    found["from the plan to our code"] = found.pop("batch run") - found.pop("our code")
    return {
        "batches": len(ends),
        "seconds": statistics.median(steady),
        "total": seconds,
        "parts": found,
    }


@contextmanager
def session(project: Project) -> Iterator[Any]:
    """A session as a run builds it, which keeps the progress of all batches."""
    from tidemill.runtime.spark.session import build_session

    conf = {"spark.sql.streaming.numRecentProgressUpdates": 200, **project.config.spark.conf}
    config = project.config.spark.model_copy(update={"conf": conf})
    spark = build_session(config, 2, "bench", log=Path(os.devnull), warm=True)
    try:
        yield spark
    finally:
        spark.stop()


CONTESTANTS: dict[str, Callable[[], dict[str, Any]]] = {
    "init's backfill": init_backfill,
    "bare PySpark": bare,
    "plan of unknown code": plan_unknown,
    "plan of known code": plan_known,
}


if __name__ == "__main__":
    contestants = {**CONTESTANTS, "batches": batches}
    print(json.dumps(contestants[sys.argv[1]]()))

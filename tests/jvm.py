"""How the JVMs of tests run: many of them, each soon ended.

Compiling well costs them more than it gives, and half of a start is loading Spark's classes from
jars. ``python -m tests.jvm`` runs a small pipeline so that its classes are kept, as any user's
first run does.
"""

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemill.runtime.spark.classes import CACHE_VARIABLE, adopt_draft, find_archive
from tidemill.runtime.spark.session import build_session, find_java

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def start_light() -> None:
    """For this process and those that it starts; what the user has set wins."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED)
    os.environ.setdefault(CACHE_VARIABLE, str(Path(__file__).parents[1] / ".cache"))


def keep_classes() -> None:
    """Run a small pipeline, and keep the classes that it took."""
    archive = find_archive(*find_java())
    if archive.exists():
        return
    print("keeping Spark's classes for the JVMs of tests …", flush=True)
    _run_a_pipeline()
    adopt_draft(archive, finished=0)


def _run_a_pipeline() -> None:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from tidemill import sessions
    from tidemill.config.spark import SparkConfig
    from tidemill.testing import MemoryLog, make_project, replay

    def code(rows: DataFrame) -> DataFrame:
        window = F.window("session_end", "1 minute").alias("w")
        made = rows.where("key > 0").transform(sessions(key="key", gap="1 s", agg={"n": "count"}))
        return made.groupBy(window).agg(F.sum("n").alias("n")).select("w.start", "n")

    began = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [began + timedelta(seconds=number) for number in range(600)]
    table = pa.table({"key": range(600), "at": moments, "ingest_ts": moments})
    log = MemoryLog(table, event_time="at", lateness=timedelta(0), skew=timedelta(0), files=2)
    with tempfile.TemporaryDirectory() as folder:
        config = SparkConfig(master="local[2]")
        spark = build_session(config, 2, "classes", log=Path(os.devnull), record=True)
        jvm = spark.sparkContext._gateway.proc
        options = {"time": "start", "warm_up": "0", "look_ahead": "0"}
        replay(spark, make_project(Path(folder), code, {"rows": log}, **options), slice="5 min")
        spark.stop()
        jvm.stdin.close()
        jvm.wait(120)


if __name__ == "__main__":
    start_light()
    keep_classes()

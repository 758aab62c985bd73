"""How the JVMs of tests run: many of them, each soon ended.

Compiling well costs them more than it gives, and half of a start is loading Spark's classes from
jars. ``python -m tests.jvm`` keeps the loaded classes in a file (class-data sharing), once for a
Java and a Spark; a JVM to which the file does not fit goes without.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemill.errors import RunError
from tidemill.runtime.session import find_java

_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=error:stderr"
_KEPT = Path(__file__).parents[1] / ".cache" / "jvm"


def start_light() -> None:
    """For this process and those that it starts; what the user has set wins."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED)
    with suppress(RunError):  # no Java: the tests that need it will say so
        archive = _archive()
        if not archive.exists():
            return
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile={archive} {_QUIET}")


def keep_classes() -> None:
    """Run a small pipeline, and keep the classes that it took."""
    archive = _archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    print("keeping Spark's classes for the JVMs of tests …", flush=True)
    draft = archive.with_name(f"{os.getpid()}.jsa")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={draft} {_QUIET}"
    _run_a_pipeline()
    if draft.exists():
        draft.rename(archive)


def _archive() -> Path:
    """Its name tells apart what it depends on; the JVM checks the jars themselves."""
    import pyspark

    java, version = find_java()
    jars = Path(pyspark.__file__).with_name("jars")
    text = f"{Path(java).resolve()} {jars} {os.environ.get('JDK_JAVA_OPTIONS')}"
    named = hashlib.sha256(text.encode()).hexdigest()[:12]
    return _KEPT / f"spark-{pyspark.__version__}-java-{version}-{named}.jsa"


def _run_a_pipeline() -> None:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from tidemill import sessions
    from tidemill.config import SparkConfig
    from tidemill.runtime.session import build_session
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
        spark = build_session(SparkConfig(master="local[2]"), 2, "classes", log=Path(os.devnull))
        jvm = spark.sparkContext._gateway.proc
        options = {"time": "start", "warm_up": "0", "look_ahead": "0"}
        replay(spark, make_project(Path(folder), code, {"rows": log}, **options), slice="5 min")
        spark.stop()
        jvm.stdin.close()
        jvm.wait(120)


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", _SHORT_LIVED)
    keep_classes()

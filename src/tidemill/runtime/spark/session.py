"""Find Java and build the Spark session a run or an analysis needs."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.config.spark import SparkConfig
from tidemill.config.sparksettings import REUSE
from tidemill.errors import RunError
from tidemill.runtime.spark.classes import jvm_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINIMUM_JAVA = 17
_LITTLE_HISTORY = {
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.ui.retainedQueries": "5",
    "spark.sql.streaming.ui.retainedProgressUpdates": "5",
}
"""Spark keeps data for its web page even if the page is off; its memory would grow every batch."""
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_COMPILE_LATER = "-XX:CompileThresholdScaling=3"
"""The JVM's compiler takes a third of a short run's CPU; with this it compiles only hot methods."""
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
"""How Spark writes checkpoints, which are on a local file system: a draft, then one rename.

With Spark's defaults Hadoop starts about 42 processes (``readlink``, ``chmod``) a batch, and
renames a file and its checksum one after the other, so that a crash in between could leave a file
with the checksum of another. Each setting needs the other one. Hadoop's checksums of state files
are gone with it; the files of folds have their own."""
_AHEAD = (
    "tidemill.runtime.driving.executor",
    "pyiceberg.catalog.sql",
    "pyspark.sql.classic.dataframe",
)
_FIX = (
    "install Java 17 or newer (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17), or set JAVA_HOME"
)


def find_java() -> tuple[str, int]:
    """The java Spark will use and its version, or an error with the fix."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise RunError(f"no Java found{f' in JAVA_HOME {home}' if home else ''}", fix=_FIX)
    version = _java_version(java)
    if version < MINIMUM_JAVA:
        raise RunError(f"{java} is Java {version or 'of an unknown version'}", fix=_FIX)
    return java, version


def _java_version(java: str) -> int:
    """The version in Java's ``release`` file, or else from ``java -version``, which is slow."""
    with suppress(OSError):
        told = (Path(java).resolve().parents[1] / "release").read_text("utf-8", errors="replace")
        found = re.search(r'^JAVA_VERSION="(\d+)', told, re.MULTILINE)
        if found:
            return int(found[1])
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr)
    return int(found[1]) if found else 0


def build_session(
    config: SparkConfig,
    shuffles: int,
    name: str,
    *,
    modules: Path | None = None,
    log: Path | None = None,
    warm: bool = False,
    record: bool = False,
) -> SparkSession:
    """The Spark session of a run or an analysis.

    Values of the YAML's ``spark.conf`` win over ours, except the number of shuffle partitions,
    which the manifest has fixed.

    ``modules`` is the folder of the user's code, for executors.
    ``log`` gets what the JVM and the Python workers print.
    ``warm``: a run follows. Its modules are imported while the JVM starts, and Spark's Python
    processes are started while its query is built.
    ``record``: the run will reach its end, and may write the classes it loads for later JVMs.
    """
    java, version = find_java()
    from pyspark.sql import SparkSession

    choose_python(config.master)
    settings = {
        "spark.master": config.master,
        "spark.app.name": f"tidemill {name}",
        **_settings(config, shuffles, modules, _sharing(config, java, version, record)),
    }
    if warm:
        threading.Thread(target=_import_ahead, name="imports", daemon=True).start()
    try:
        with _stderr_to(log):
            _start_jvm(settings, is_logged=log is not None)
            builder = SparkSession.builder.config(map=settings)
            spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        told = f"; {log} has Spark's own words" if log else ""
        raise RunError(
            f"Spark does not start: {_reason(error)}",
            where=f"master {config.master}",
            fix=f"check spark: in the YAML{told}",
        ) from error
    spark.sparkContext.setLogLevel("ERROR")
    if warm:
        from tidemill.runtime.spark.warming import warm_workers

        warm_workers(spark)
    return spark


def _start_jvm(settings: dict[str, str], is_logged: bool) -> None:
    """Start this process's JVM as PySpark does, but in its own process session.

    A closed terminal, Ctrl-C and `timeout` signal every process of their group. Without its own
    session the JVM would end at once, before the running slice is committed; so only the driver
    gets the signal, and ends the JVM after the commit. If the driver is killed, the JVM sees its
    pipe close, and ends.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    words = {"stdout": 2} if is_logged else {}  # standard output is for results
    gateway = launch_gateway(conf, {"start_new_session": True, **words})
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm


_ENDING = 60.0


def stop_session(spark: SparkSession) -> None:
    """Stop a session that was built here; kill its JVM if the JVM does not answer in time."""
    if not is_done_within(_ENDING, spark.stop):
        end_jvm(spark)


def is_done_within(seconds: float, call: Callable[[], object]) -> bool:
    """Whether a call to the JVM ends in time; it may fail, because the JVM may be gone already."""

    def run() -> None:
        with suppress(Exception):
            call()

    thread = threading.Thread(target=run, name="stopping Spark", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def end_jvm(spark: SparkSession) -> None:
    """Kill the JVM of a session, so that the next session of this process starts a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Sessions

    process = spark.sparkContext._gateway.proc
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    Sessions._instantiatedSession = None


def _sharing(config: SparkConfig, java: str, version: int, record: bool) -> list[str]:
    """The JVM options for shared classes; none if no JVM is started or it could not use them."""
    from pyspark import SparkContext

    if _JVM_OPTIONS in config.conf or SparkContext._gateway is not None:
        return []
    if os.environ.get("SPARK_CONF_DIR"):
        return []  # with a folder on its class path a JVM shares no classes
    before = str(config.conf.get("spark.driver.extraClassPath", ""))
    return jvm_options(java, version, before, record=record)


def _import_ahead() -> None:
    """Import modules early; an import that fails here fails again, visibly, where it is needed."""
    for name in _AHEAD:
        with suppress(Exception):
            importlib.import_module(name)


def choose_python(master: str) -> None:
    """Let Spark's processes use this Python, unless the user has named another one.

    On a local master they start through ``python.sh``, which saves half a second per process.
    """
    quick = str(Path(__file__).with_name("python.sh"))
    if os.environ.get("PYSPARK_PYTHON", quick) not in (quick, sys.executable):
        return
    is_here = re.fullmatch(r"local(\[.*\])?", master) is not None
    os.environ["TIDEMILL_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = (
        quick if is_here and os.access(quick, os.X_OK) else sys.executable
    )


def _reason(error: Exception) -> str:
    """The line of an error that says why: in a Java error it comes after the name of the call."""
    lines = str(error).splitlines() or [type(error).__name__]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (java or lines)[0]


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Redirect stderr to the file inside the block, so that processes started there inherit it."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def run_settings(shuffles: int, keep_batches: int) -> dict[str, str]:
    """A run's own query settings, beside those that all runs have (``config/sparksettings.py``).

    A fold's bucket must run in every batch, even if it gets no rows. So Spark must not remove an
    empty part of a plan, neither when it optimises the plan nor while the plan runs. Equal shuffles
    are not shared until the query is known and allows it (``share_shuffles``).
    """
    return {
        REUSE: "false",
        "spark.sql.shuffle.partitions": str(shuffles),
        "spark.sql.optimizer.excludedRules": (
            "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
        ),
        "spark.sql.streaming.minBatchesToRetain": str(keep_batches),
        "spark.sql.streaming.pollingDelay": "20ms",
    }


def _settings(
    config: SparkConfig, shuffles: int, modules: Path | None, options: list[str]
) -> dict[str, str]:
    logging = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"
    ours = {
        "spark.ui.enabled": "false",
        **_LITTLE_HISTORY,
        **_LOCAL_FILES,
        "spark.driver.memory": config.memory or "2g",
        _JVM_OPTIONS: " ".join(f'"{option}"' for option in (logging, _COMPILE_LATER, *options)),
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "tidemill.runtime.spark.daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
    }
    if modules is not None:
        ours["spark.executorEnv.PYTHONPATH"] = str(modules)
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.conf.items()
    }
    return {**ours, **given, "spark.sql.shuffle.partitions": str(shuffles)}

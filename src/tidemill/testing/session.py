"""The Spark session of tests and notebooks."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.config.spark import SparkConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shared_session(log: Path | None = None) -> SparkSession:
    """The running Spark session of this process, or else a small one that is started now.

    Starting takes seconds, so one session serves all tests. It is local with two cores, and lives
    until ``stop()`` is called or the process ends. Its executors import modules from wherever this
    process does at the moment of the start (``sys.path``); a session of your own must see to this
    itself. ``log`` gets what Spark prints; by default it is a file in a temporary folder.
    """
    from tidemill.runtime.spark.session import build_session

    running = running_session()
    if running is not None:
        return running
    modules = os.pathsep.join(entry for entry in sys.path if entry)
    config = SparkConfig(
        master="local[2]", memory="1g", conf={"spark.executorEnv.PYTHONPATH": modules}
    )
    log = log or Path(tempfile.mkdtemp(prefix="tidemill-")) / "spark.log"
    return build_session(config, 2, "tests", log=log)


def running_session() -> SparkSession | None:
    """The Spark session that this process has already, whoever started it."""
    from pyspark.sql import SparkSession

    found: SparkSession | None = (
        SparkSession.getActiveSession() or SparkSession._instantiatedSession
    )
    if found is None or found.sparkContext._jsc is None:  # it was stopped
        return None
    return found

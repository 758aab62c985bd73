"""What all tests share: how Hypothesis runs, and one Spark session for all of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as executors have it; small frames run faster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "tidemill",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tidemill")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The shared session: starting one costs seconds."""
    from tidemill.config import SparkConfig
    from tidemill.runtime.session import build_session

    log: Path = tmp_path_factory.mktemp("spark") / "spark.log"
    session = build_session(SparkConfig(master="local[2]", memory="2g"), 2, "tests", log=log)
    yield session
    session.stop()

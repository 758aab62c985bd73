"""What all tests share: how Hypothesis runs, one Spark session and one Kafka for all of them."""

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.jvm import start_light

start_light()
os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as executors have it; small frames run faster

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

    from tests.kafka.broker import Broker

settings.register_profile(
    "tidemill",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tidemill")


_LONGEST_FIRST = ("kill", "kafka", "cluster", "slow", "spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses Spark or Kafka is marked so. Files that take minutes begin first.

    The short ones then fill what is left at the end.
    """
    for item in items:
        for fixture, mark in (("spark", "spark"), ("broker", "kafka"), ("browser", "browser")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)

    def place(item: pytest.Item) -> int:
        marks = [item.get_closest_marker(name) is not None for name in _LONGEST_FIRST]
        return marks.index(True) if any(marks) else len(marks)

    items.sort(key=place)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The shared session: starting one costs seconds."""
    from tidemill.config.spark import SparkConfig
    from tidemill.runtime.spark.session import build_session

    log: Path = tmp_path_factory.mktemp("spark") / "spark.log"
    session = build_session(SparkConfig(master="local[2]", memory="2g"), 2, "tests", log=log)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """The shared Kafka of this pytest process; a test that stops it must restart it.

    Where its jars cannot be had the tests skip and say so; in CI they fail.
    """
    from tests.kafka.broker import Broker
    from tests.servers import DownloadError, cannot_run

    shared = Broker(tmp_path_factory.mktemp("kafka"))
    try:
        shared.start()
    except DownloadError as error:
        cannot_run(f"KAFKA TESTS DID NOT RUN: {error}")
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A Chromium that tests drive. Where there is none they skip and say so; in CI they fail."""
    from tests.browser import chromium

    with chromium() as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test has; the test creates the topic as it needs it."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:80].strip("-")
    return f"{name}-{uuid.uuid4().hex[:8]}"

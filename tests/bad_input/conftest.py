"""Projects that several files of these tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.bad_input.shop import Shop, events, table
from tests.bad_input.terminal import lent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A project whose code is known already: planning it starts no Spark."""
    made = Shop.make(tmp_path_factory.mktemp("shop"))
    made.fill("logs.plays", table(events()), files=4)
    return made.know()


@pytest.fixture
def lend(spark: "SparkSession") -> Iterator[None]:
    """Commands in this process use the shared session."""
    with lent(spark):
        yield


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would start Spark fails at once instead."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")

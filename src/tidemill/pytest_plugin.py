"""The pytest plugin: fixtures for tests of pipelines, in every environment with Tidemill.

pytest loads this module at each start, also for tests that have nothing to do with Tidemill. So it
imports nothing but pytest; fixtures import what they need when a test asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.testing import MemoryProject


@pytest.fixture(scope="session")
def tidemill_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of all tests: the running one, or a small one for this pytest process.

    A session that was started here is stopped after the last test. A fixture of this name in your
    ``conftest.py`` takes its place.
    """
    from tidemill.testing.session import running_session, shared_session

    before = running_session()
    session = before or shared_session(tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    if before is None:
        session.stop()


@pytest.fixture
def tidemill_project(tmp_path: Path, tidemill_spark: SparkSession) -> Callable[..., MemoryProject]:
    """A function that makes projects in the test's temporary folder, as ``make_project`` does.

    It is called with the pipeline, its streams and the options; each project has its own folder.
    """
    from tidemill.testing import make_project

    made: list[MemoryProject] = []

    def make(code: Any, streams: Any, **options: Any) -> MemoryProject:
        project = make_project(tmp_path / f"project{len(made)}", code, streams, **options)
        project.spark = tidemill_spark
        made.append(project)
        return project

    return make

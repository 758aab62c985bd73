"""Test pipelines with logs made in memory, which are replayed through the real engine.

Rows are plain Python, the pipeline is the function itself, and Spark and the Iceberg tables (in a
temporary folder) are real; only the log is made up::

    def test_plays(tidemill_project):
        rows = [{"show_id": 1, "seconds": 60, "event_ts": "2026-01-01T00:01Z"}]
        found = tidemill_project(plays_per_show, {"playbacks": rows}, time="window_start").replay()
        assert_rows(found.output, [{"show_id": 1, "plays": 1, …}])

    def test_plays_keep_the_slicing_law(tidemill_spark):
        assert_slicing_law(plays_per_show, {"playbacks": rows}, time="window_start")

The fixtures come with the package (`tidemill.pytest_plugin`). docs/testing.md tells the rest.
"""

from tidemill.testing.law import assert_slicing_law
from tidemill.testing.logs import MemoryLog, make_log
from tidemill.testing.projects import MemoryProject, Replayed, collect, make_project, replay
from tidemill.testing.rows import assert_rows
from tidemill.testing.session import shared_session
from tidemill.testing.tables import MemoryInstances, MemoryTable, make_instances, make_table

assert_same_rows = assert_rows  # the name that Tidemill's own tests use

__all__ = [
    "MemoryInstances",
    "MemoryLog",
    "MemoryProject",
    "MemoryTable",
    "Replayed",
    "assert_rows",
    "assert_slicing_law",
    "collect",
    "make_instances",
    "make_log",
    "make_project",
    "make_table",
    "replay",
    "shared_session",
]

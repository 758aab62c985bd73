"""`--emit-from`: state from history, output from there on only."""

from datetime import timedelta

import pytest

from tests.live.meadow import Meadow, since
from tidemill.project import Until
from tidemill.testing import assert_same_rows
from tidemill.types import to_micros

pytestmark = pytest.mark.spark
MINUTE = timedelta(minutes=1)


CODE = """
from tidemill import pipeline, sessions

@pipeline
def pipeline(plays):
    agg = {"n": "count", "sum": ("sum", "n")}
    return plays.transform(sessions(key="key", gap="8 s", max_length="1 min", agg=agg))
"""


def test_history_makes_state_and_output_begins_where_it_is_told(spark, tmp_path):
    """A run that writes its history too gives the same rows from there on, live ones included."""
    meadow = Meadow(tmp_path, CODE, 1, time="session_start")
    project, born = meadow.project, meadow.born
    emission = born - 4 * MINUTE - timedelta(milliseconds=1)
    begun = {
        table: project.prepare_run("pipeline", born - 9 * MINUTE, into=table, spark=spark, **more)
        for table, more in (
            ("marts.whole", {}),
            ("marts.part", {"emit_from": emission, "append": True}),
        )
    }
    seam = begun["marts.part"].sources["plays"].phase.seam
    closing = Until(moment=meadow.grow(40) + timedelta(seconds=2))
    results = [project.resume(run.run, until=closing, spark=spark) for run in begun.values()]
    assert min(result.totals.frontier for result in results) > seam
    whole, part = meadow.rows("marts.whole"), meadow.rows("marts.part")
    frontier = min(result.totals.frontier for result in results)
    closed = [
        [row for row in rows if to_micros(row["session_start"]) < frontier - 80_000_000]
        for rows in (since(whole, "session_start", emission), part)
    ]
    assert 10 < len(closed[0]) < len(whole) / 1.5
    assert_same_rows(*closed, "all of history, and from the emission on")
    late = [meadow.rows(f"marts.{name}__late") for name in ("whole", "part")]
    assert len(late[1]) < len(late[0])
    assert_same_rows(since(late[0], "ingest_time", emission), late[1], "late rows")
    assert project.status(begun["marts.part"].run).range.start == emission

"""The slicing law for every fold, through Spark: real shuffles, state files, restarts.

The logs and oracles are those of the tests without Spark (`tests/folds`), whose whole microseconds
become milliseconds here. Each query carries 25 random logs as different keys, has a random slicing
and number of buckets of its own, and is stopped and started again in the middle. The suite plays
one query of each kind, `make torture` six.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tests.effort import times
from tests.folds import (
    law,
    processors,
    test_attribute,
    test_custom,
    test_deduplicate,
    test_process,
    test_sessions,
    test_top_n,
    test_unique_counts,
    test_windows,
)
from tests.folds.dense import WITHIN, dense_cuts
from tests.laws.stopping import run_until
from tidemill import (
    attribute,
    deduplicate,
    fold,
    process,
    sessions,
    top_n,
    unique_counts,
    windows,
)
from tidemill.project import Project
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project
from tidemill.types import MILLISECOND, from_micros, to_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUERIES = times(1, torture=6)
"""Of each operator and each way to read its rows."""

LEAST_ROWS, LEAST_CUTS = 25, 3
_GRID = lcm(*range(1, 25)) * MILLISECOND
ORIGIN = to_micros(datetime(2026, 1, 1, tzinfo=UTC)) // _GRID * _GRID
"""Where the logs' time 0 lies: a multiple of every window."""


@dataclass(frozen=True)
class Case:
    """A fold on a log (or two), what makes the rows, and the oracle."""

    code: Any
    schema: pa.Schema
    logs: Any
    oracle: Any
    time: str
    cuts: Any = field(default_factory=law.cuts)
    sided: bool = False


class Quiet(processors.Quiet):
    """The processor of the tests without Spark, in milliseconds."""

    GAP = processors.Quiet.GAP * MILLISECOND


KEY = ["trial", "user"]
NUMBER = test_custom.FOLDS[test_custom.number][1]

CASES = {
    "sessions": Case(
        lambda rows: rows.transform(
            sessions(
                key=KEY,
                gap=f"{test_sessions.GAP} ms",
                max_length=f"{test_sessions.LONGEST} ms",
                agg=test_sessions.AGG,
            )
        ),
        test_sessions.SCHEMA,
        law.logs(test_sessions.row),
        lambda rows: test_sessions.oracle(rows, test_sessions.LONGEST),
        "session_end",
    ),
    "deduplicate": Case(
        lambda rows: rows.drop("ingest_ts").transform(deduplicate(key=KEY, within=f"{WITHIN} ms")),
        test_deduplicate.PLAIN,
        test_deduplicate.LOGS,
        lambda rows: test_deduplicate.oracle(rows, "first"),
        "at",
        dense_cuts(),
    ),
    "deduplicate, keep last": Case(
        lambda rows: rows.drop("ingest_ts").transform(
            deduplicate(key=KEY, within=f"{WITHIN} ms", keep="last")
        ),
        test_deduplicate.PLAIN,
        test_deduplicate.LOGS,
        lambda rows: test_deduplicate.oracle(rows, "last"),
        "at",
        dense_cuts(),
    ),
    "attribute": Case(
        lambda left, right: left.drop("ingest_ts").transform(
            attribute(
                right.drop("ingest_ts"),
                on=KEY,
                within=f"{WITHIN} ms",
                prefix="their_",
            )
        ),
        test_attribute.PLAIN,
        test_attribute.LOGS,
        lambda rows: test_attribute.oracle(test_attribute.sided(rows)),
        "at",
        dense_cuts(),
        sided=True,
    ),
    "attribute, forward, all": Case(
        lambda left, right: left.drop("ingest_ts").transform(
            attribute(
                right.drop("ingest_ts"),
                on=KEY,
                within=f"{WITHIN} ms",
                direction="forward",
                pick="all",
                how="inner",
                prefix="their_",
            )
        ),
        test_attribute.PLAIN,
        test_attribute.LOGS,
        lambda rows: test_attribute.oracle(test_attribute.sided(rows), "forward", "all", "inner"),
        "at",
        dense_cuts(),
        sided=True,
    ),
    "windows": Case(
        lambda rows: rows.transform(
            windows(key=KEY, every="10 ms", size="30 ms", agg=test_windows.AGG, empty_for="33 ms")
        ),
        test_windows.SCHEMA,
        law.logs(test_windows.row),
        lambda rows: test_windows.oracle(rows, 10, 30, 33),
        "window_start",
    ),
    "unique_counts": Case(
        lambda rows: rows.transform(
            unique_counts(key=KEY, column="thing", every="10 ms", size="30 ms")
        ),
        test_unique_counts.SCHEMA,
        law.logs(test_unique_counts.row),
        lambda rows: test_unique_counts.oracle(rows, 10, 30),
        "window_end",
    ),
    "top_n": Case(
        lambda rows: rows.drop("ingest_ts").transform(
            top_n(2, by="score", key=KEY, every="20 ms", size="60 ms")
        ),
        test_top_n.SCHEMA,
        test_top_n.rows_of,
        lambda rows: test_top_n.oracle(rows, 20, 60, 2),
        "window_start",
    ),
    "process": Case(
        lambda rows: rows.transform(process(Quiet, key=KEY)),
        processors.SCHEMA,
        law.logs(test_process.row),
        lambda rows: test_process.oracle(processors.Quiet, rows),
        "at",
    ),
    "fold": Case(
        lambda rows: rows.transform(fold(test_custom.number, key=KEY, **NUMBER)),
        test_custom.SCHEMA,
        law.logs(test_custom.row),
        lambda rows: test_custom.oracle(test_custom.number, rows),
        "at",
    ),
}


READ = ("where they are read", "behind a filter")
"""Rows become a fold's parts where they are read, or behind other operators of Spark's."""
ONE_WAY = {
    "deduplicate": READ[:1],
    "deduplicate, keep last": READ[1:],
    "attribute": READ[:1],
    "attribute, forward, all": READ[:1],
}
"""Variants of an operator share the ways; rows of two streams are never parts where they are read.
"""
QUERIED = [(name, read) for name in CASES for read in ONE_WAY.get(name, READ)]


def scaled(value: Any) -> Any:
    """Microseconds near 1970 to milliseconds near 2026."""
    if isinstance(value, datetime):
        return from_micros(ORIGIN + law.micros(value) * MILLISECOND)
    if isinstance(value, dict):
        return {name: scaled(each) for name, each in value.items()}
    return [scaled(each) for each in value] if isinstance(value, list) else value


def log_of(case: Case, rows: list[tuple[int, dict[str, Any]]]) -> MemoryLog:
    """The rows as a stream's history."""
    schema = case.schema.append(pa.field("ingest_ts", pa.timestamp("us", "UTC")))
    made = [
        {name: scaled(row[name]) for name in case.schema.names}
        | {"ingest_ts": scaled(law.moment(at))}
        for at, row in rows
    ]
    table = pa.Table.from_pylist(made, schema=schema)
    lateness = timedelta(milliseconds=law.LATENESS)
    skew = timedelta(milliseconds=test_top_n.COARSE)  # its coarse times make rows come early
    return MemoryLog(table, event_time="at", lateness=lateness, skew=skew, files=2)


def logs_of(case: Case, rows: list[tuple[int, dict[str, Any]]]) -> dict[str, MemoryLog]:
    """One stream, or for a fold of two inputs one for each side."""
    if not case.sided:
        return {"rows": log_of(case, rows)}
    sides = {"left": 0, "right": 1}
    return {
        name: log_of(case, [(at, row) for at, row in rows if row["side"] == side])
        for name, side in sides.items()
    }


def replay_with_a_stop(
    project: Project, spark: "SparkSession", frontiers: list[datetime], stop: int
) -> list[dict[str, Any]]:
    """Run under this slicing, stop once in the middle; the rows of the output."""
    start, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (1990, 2090))
    plan = project.plan(
        "pipeline", start, end, spark=spark, warm_up="0", look_ahead="0", allow_empty=True
    )
    first, last = plan.boundaries[0], plan.boundaries[-1]
    inner = sorted({to_micros(moment) for moment in frontiers})
    inner = [cut for cut in inner if first < cut < last]
    manifest = project.prepare(replace(plan, boundaries=(first, *inner, last)))
    run_until(project, manifest.run, spark, min(stop, len(inner)))
    result = project.status(manifest.run)
    if result.state != "finished":
        result = project.resume(manifest.run, spark=spark)
    return list(collect(project, result).output.to_pylist())


def check(
    spark: "SparkSession", folder: Path, case: Case, data: st.DataObject, is_filtered: bool
) -> None:
    """One query; the trivial one that Hypothesis tries first is passed over."""
    rows = data.draw(case.logs)
    cut = data.draw(case.cuts)
    assume(len(rows) > LEAST_ROWS and len(cut.frontiers) >= LEAST_CUTS)
    stop = data.draw(st.integers(0, LEAST_CUTS))
    code = _behind_a_filter(case.code) if is_filtered else case.code
    project = make_project(
        folder / uuid4().hex, code, logs_of(case, rows), time=case.time, buckets=cut.buckets
    )
    frontiers = [scaled(law.moment(frontier)) for frontier in cut.frontiers]
    found = replay_with_a_stop(project, spark, frontiers, stop)
    expected = scaled(list(case.oracle(rows)))
    for row in (*found, *expected):
        row.pop("session_id", None)  # the oracle's follows from times before they are scaled
    assert_same_rows(found, expected, str(cut))


def _behind_a_filter(code: Any) -> Any:
    """The same pipeline, whose rows cannot become parts where they are read."""
    return lambda rows: code(rows.where("at is not null"))


@pytest.mark.parametrize(("name", "read"), QUERIED, ids=[", ".join(each) for each in QUERIED])
@settings(max_examples=QUERIES, phases=[Phase.explicit, Phase.generate], database=None)
@given(data=st.data())
def test_every_fold(
    spark: "SparkSession", tmp_path: Path, name: str, read: str, data: st.DataObject
) -> None:
    """Random queries without shrinking: each takes seconds."""
    check(spark, tmp_path, CASES[name], data, read == READ[1])

"""Test pipelines with logs made in memory, which are replayed through the real engine.

A pipeline that keeps the slicing law gives the same rows however its input is cut::

    log = MemoryLog(rows, event_time="event_ts", lateness=timedelta(minutes=10))
    project = make_project(tmp_path, plays, {"plays": log}, time="window_start")
    check_slicing_law(spark, project, slicings=[[], [moment, other_moment]])

Spark, the Iceberg tables (in a temporary folder) and other sinks are real; only the log is made up.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml

from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.table import open_sides
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.pipeline import Pipeline, pipeline
from tidemill.planning.code.params import write
from tidemill.project import Project, RunResult, load
from tidemill.runfolder.folder import RunFolder
from tidemill.types import MILLISECOND, show_duration, show_instant, to_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
_SHOWN = 12
_ROUNDING = 1e-9


@dataclass(frozen=True)
class MemoryLog:
    """The history of one stream: rows with event time, ingest time, maybe a position."""

    rows: pa.Table
    event_time: str = "event_ts"
    ingest_time: str = "ingest_ts"
    lateness: timedelta = timedelta(0)
    skew: timedelta = timedelta(0)
    partition: str | None = None
    offset: str | None = None
    files: int = 1
    source: dict[str, Any] = field(default_factory=dict)

    def stream(self, name: str) -> dict[str, Any]:
        """The stream's section of the YAML."""
        archive = {"type": "iceberg", "table": f"logs.{name}", "ingest_time": self.ingest_time}
        if self.partition and self.offset:
            archive |= {"partition": self.partition, "offset": self.offset}
        return {
            "event_time": self.event_time,
            "lateness": show_duration(self.lateness),
            "skew": show_duration(self.skew),
            "archive": archive,
        }


@dataclass(frozen=True)
class Replayed:
    """The result and the tables of a replay."""

    result: RunResult
    outputs: dict[str, pa.Table]
    late: pa.Table
    dead: pa.Table

    @property
    def output(self) -> pa.Table:
        """The only output."""
        return self.outputs["output"]


def make_project(
    folder: Path, code: Pipeline | Callable[..., Any], logs: Mapping[str, MemoryLog], **options: Any
) -> Project:
    """Write a project with one pipeline and its logs. Options go into the pipeline's section.

    So ``params`` are values of the pipeline's parameters; :func:`replay` takes other ones.
    ``sinks`` defaults to one output whose time is ``time``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = code if isinstance(code, Pipeline) else pipeline(code)
    module = ModuleType(f"_tidemill_testing_{next(_numbers)}")
    module.__file__ = str(folder / "pipeline.py")
    module.pipeline = made  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    time = options.pop("time", None)
    if "params" in options:  # YAML has no Decimal and no timedelta
        given = options["params"].items()
        options["params"] = {
            name: write(value) if isinstance(value, Decimal | timedelta) else value
            for name, value in given
        }
    sink = {"table": "marts.output", **({"time": time} if time else {})}
    section = {
        "entry": f"{module.__name__}:pipeline",
        "sinks": {"output": sink},
        "sources": {name: log.source for name, log in logs.items() if log.source},
        **options,
    }
    text = {
        "streams": {name: log.stream(name) for name, log in logs.items()},
        "pipelines": {"pipeline": section},
        "spark": {"master": "local[2]"},
    }
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(text), "utf-8")
    project = load(folder / "tidemill.yaml")
    catalog = open_catalog(project.loaded)
    for name, log in logs.items():
        table = ensure_table(catalog, f"logs.{name}", log.rows.schema, None, "none")
        size = max(1, -(-len(log.rows) // log.files))
        for at in range(0, len(log.rows), size):
            table.append(log.rows.slice(at, size))
    return project


def replay(
    spark: SparkSession,
    project: Project,
    boundaries: Sequence[datetime] | None = None,
    **options: Any,
) -> Replayed:
    """Run the project's pipeline over all its history, cut at exactly these moments.

    Without boundaries the plan chooses the slices; options are those of `backfill`.
    """
    start = options.pop("start", datetime(1990, 1, 1, tzinfo=UTC))
    end = options.pop("end", datetime(2090, 1, 1, tzinfo=UTC))
    plan = project.plan("pipeline", start, end, spark=spark, **options)
    if boundaries is not None:
        first, last = plan.boundaries[0], plan.boundaries[-1]
        cuts = sorted({to_micros(moment) // MILLISECOND * MILLISECOND for moment in boundaries})
        inner = [cut for cut in cuts if first < cut < last]
        plan = replace(plan, boundaries=(first, *inner, last))
    manifest = project.prepare(plan)
    return collect(project, project.resume(manifest.run, spark=spark))


def collect(project: Project, result: RunResult) -> Replayed:
    """Read what a run has written, from wherever its sinks put it."""
    folder = RunFolder.of(project.loaded.home, result.run)
    manifest = folder.read_manifest()
    run = SinkRun(project.loaded, open_catalog(project.loaded), manifest, folder.path)
    outputs, sides = open_sinks(run), open_sides(run)
    return Replayed(
        result,
        {name: sink.read() for name, sink in outputs.items()},
        sides[result.late].read(),
        sides[result.dead].read(),
    )


def check_slicing_law(
    spark: SparkSession,
    project: Project,
    slicings: Iterable[Sequence[datetime]],
    expected: Iterable[Mapping[str, Any]] | None = None,
    *,
    rounded: Collection[str] = (),
) -> None:
    """Replay with every slicing; all outputs must have the same rows (those of ``expected``).

    ``rounded``: as in :func:`assert_same_rows`.
    """
    known = None if expected is None else list(expected)
    for slicing in slicings:
        found = replay(spark, project, slicing).output.to_pylist()
        shown = ", ".join(show_instant(moment) for moment in slicing)
        known = found if known is None else known
        assert_same_rows(found, known, f"cut at [{shown}]", rounded=rounded)


def assert_same_rows(
    found: Iterable[Mapping[str, Any]],
    expected: Iterable[Mapping[str, Any]],
    what: str = "",
    *,
    rounded: Collection[str] = (),
) -> None:
    """Compare rows as multisets; a difference is shown side by side.

    ``rounded`` names the columns that Spark adds up in floating point (the plan lists them as a
    risk): they need to be equal in nine digits only, all others exactly.
    """
    found, expected = list(found), list(expected)
    ours, theirs = Counter(map(_key, found)), Counter(map(_key, expected))
    if ours == theirs or (rounded and _are_close(found, expected, rounded)):
        return
    extra, missing = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
    lines = [f"rows differ {what}: {len(missing)} missing, {len(extra)} too many"]
    for left, right in itertools.islice(
        itertools.zip_longest(missing, extra, fillvalue=""), _SHOWN
    ):
        lines.append(f"  expected {_text(left)}\n  found    {_text(right)}")
    raise AssertionError("\n".join(lines))


def _are_close(
    found: Iterable[Mapping[str, Any]],
    expected: Iterable[Mapping[str, Any]],
    rounded: Collection[str],
) -> bool:
    """Whether the rows can be paired so that exact columns are equal and rounded ones close."""
    ours, theirs = _split(found, rounded), _split(expected, rounded)
    return len(ours) == len(theirs) and all(
        key == other and all(map(_is_close, values, others))
        for (key, values), (other, others) in zip(ours, theirs, strict=True)
    )


def _split(rows: Iterable[Mapping[str, Any]], rounded: Collection[str]) -> list[tuple[Any, Any]]:
    """Each row as its exact columns and its rounded ones, sorted."""
    split = [
        (_key({n: v for n, v in row.items() if n not in rounded}), [row.get(n) for n in rounded])
        for row in rows
    ]
    return sorted(split, key=lambda row: (row[0], [_rank(value) for value in row[1]]))


def _rank(value: float | None) -> tuple[bool, bool, float]:
    """What to sort by: numbers, then those that are none, then nulls."""
    return value is None, value is not None and math.isnan(value), value or 0


def _is_close(ours: float | None, theirs: float | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    both_odd = math.isnan(ours) and math.isnan(theirs)
    return both_odd or math.isclose(ours, theirs, rel_tol=_ROUNDING)


def _key(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(_plain(value))) for name, value in row.items()))


def _plain(value: Any) -> Any:
    """The value with times in UTC, so that equal times compare as equal."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _text(row: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in row) if row else "(no row)"

"""Projects made for a test: one pipeline and its logs in a folder, replayed by the real engine."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import yaml

from tidemill.config.loader import load_config
from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.table import open_sides
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import ConfigError
from tidemill.iceberg.catalog import open_catalog
from tidemill.pipeline import Pipeline, pipeline
from tidemill.planning.code.params import write
from tidemill.project import Project, RunResult
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.code.packages import Origin, find_origin
from tidemill.testing.logs import MemoryLog, as_log
from tidemill.testing.session import shared_session
from tidemill.testing.tables import MemoryInstances, write_tables
from tidemill.types import MILLISECOND, to_micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Code: TypeAlias = Pipeline | Callable[..., Any] | str
_NAME = "pipeline"


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


class MemoryProject(Project):
    """A project of :func:`make_project`: everything a :class:`Project` can do, and ``replay``.

    Its only pipeline is called ``pipeline``.
    """

    spark: SparkSession | None = None  # None: that of shared_session()

    def replay(self, boundaries: Sequence[datetime] | None = None, **options: Any) -> Replayed:
        """Run the pipeline over all its history, and read what it has written.

        ``boundaries`` are the moments of ingest time at which the input is cut into slices; an
        empty list means one slice. Without them the plan chooses the slices. Options are those of
        ``backfill``: ``params``, ``start``, ``end``, ``slice``. Each replay is a run of its own.
        """
        return replay(self.spark or shared_session(), self, boundaries, **options)


def make_project(
    folder: Path | str,
    code: Code,
    streams: Mapping[str, Any],
    *,
    time: str | Mapping[str, str | None] | None = None,
    tables: Mapping[str, Any] | None = None,
    instances: MemoryInstances | None = None,
    **options: Any,
) -> MemoryProject:
    """Write a project with one pipeline and the logs of its streams into an empty folder.

    ``code`` is the pipeline itself: a function, also one that is defined in a test or a notebook,
    or Spark SQL as text. ``streams`` maps each stream's name to a :class:`MemoryLog` or to plain
    rows, of which :func:`make_log` makes one.

    ``time`` is the column of the output by which a range of time is cut. A pipeline with several
    outputs needs a mapping from their names to their times. ``tables`` maps the names of reference
    tables to a :class:`MemoryTable` or to plain rows, of which :func:`make_table` makes one.
    ``instances`` are those of the pipeline, made by :func:`make_instances`. Other options are keys
    of the pipeline's section in the YAML: ``params``, ``warm_up``, ``allow``, or ``sinks`` instead
    of ``time``.

    The function runs in this process. What executors run of it (UDFs, folds) is sent to them with
    the module that defines the function; other modules of yours are imported there, see
    :func:`shared_session`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tidemill.yaml"
    if path.exists():
        raise ConfigError(
            "there is a project already, and its logs would get the rows a second time",
            where=str(path),
            fix="make each project of a test in a folder of its own",
        )
    logs = {name: as_log(rows) for name, rows in streams.items()}
    section = {
        **_code(folder, code),
        "sinks": _sinks(time),
        "sources": {name: log.source for name, log in logs.items() if log.source},
        **options,
        "params": _written(options.get("params", {})),
        **({} if instances is None else {"instances": instances.section()}),
    }
    text = {
        "streams": {name: log.stream(name) for name, log in logs.items()},
        "tables": write_tables(tables or {}, folder),
        "pipelines": {_NAME: section},
        "spark": {"master": "local[2]"},
    }
    path.write_text(yaml.safe_dump(text), "utf-8")
    project = MemoryProject(load_config(path))
    _fill(project, logs)
    if instances is not None:
        schema = instances.rows.schema
        table = ensure_table(open_catalog(project.loaded), instances.table, schema, None, "none")
        table.append(instances.rows)
    return project


def _code(folder: Path, code: Code) -> dict[str, str]:
    """The keys of the YAML that name the code; a function gets a module that only holds it."""
    if isinstance(code, str):
        return {"sql": code}
    made = code if isinstance(code, Pipeline) else pipeline(code)
    _send_by_value(str(getattr(inspect.unwrap(made.function), "__module__", "")))
    module = ModuleType(f"_tidemill_testing_{uuid4().hex}")
    module.__file__ = str(folder / "pipeline.py")
    module.pipeline = made  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    return {"entry": f"{module.__name__}:{_NAME}"}


def _send_by_value(name: str) -> None:
    """Let Spark send functions of a user's module whole, because executors may not import it.

    pytest makes modules of test files importable in its own process only. What is installed, and a
    notebook's ``__main__``, Spark handles as it is.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    if name != "__main__" and name in sys.modules and find_origin(name) is Origin.OWN:
        register_pickle_by_value(sys.modules[name])


def _sinks(time: str | Mapping[str, str | None] | None) -> dict[str, Any]:
    times = {"output": time} if time is None or isinstance(time, str) else time
    return {
        name: {"table": f"marts.{name}", **({"time": column} if column else {})}
        for name, column in times.items()
    }


def _written(params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of parameters as YAML has them: it has no Decimal and no timedelta."""
    return {
        name: write(value) if isinstance(value, Decimal | timedelta) else value
        for name, value in params.items()
    }


def _fill(project: Project, logs: Mapping[str, MemoryLog]) -> None:
    catalog = open_catalog(project.loaded)
    for name, log in logs.items():
        table = ensure_table(catalog, f"logs.{name}", log.rows.schema, None, "none")
        size = max(1, -(-len(log.rows) // log.files))
        for at in range(0, len(log.rows), size):
            table.append(log.rows.slice(at, size))


def replay(
    spark: SparkSession,
    project: Project,
    boundaries: Sequence[datetime] | None = None,
    **options: Any,
) -> Replayed:
    """As :meth:`MemoryProject.replay`, for any project that has a pipeline called ``pipeline``."""
    start = options.pop("start", datetime(1990, 1, 1, tzinfo=UTC))
    end = options.pop("end", datetime(2090, 1, 1, tzinfo=UTC))
    plan = project.plan(_NAME, start, end, spark=spark, **options)
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

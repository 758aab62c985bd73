"""Find out what a pipeline's code does, in a small Spark session; no data is read."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import PlanError, TidemillError
from tidemill.folds.building import Building, building
from tidemill.pipeline import Pipeline
from tidemill.planning.code.analysis import OutputPlans, PipelineFacts, find_facts
from tidemill.planning.code.behaviour import (
    conceal,
    describe_difference,
    first_difference,
    plan_lines,
    secrets_in,
)
from tidemill.planning.code.lineage import SOURCE_MARK
from tidemill.planning.code.params import param_lines
from tidemill.planning.code.streaming import ACTION, cause_of
from tidemill.planning.code.tree import Tree, build_tree
from tidemill.planning.graph.finding import find_graph
from tidemill.planning.graph.nodes import Graph
from tidemill.reading.reference import table_frame
from tidemill.rows.columns import pipeline_schema
from tidemill.runtime.code.authored import authoring
from tidemill.runtime.code.calls import find_calls, own_file
from tidemill.runtime.code.carried import carried_lines
from tidemill.runtime.code.catalyst import (
    carried_functions,
    find_clocks,
    find_rounded,
    spoken_nodes,
)
from tidemill.runtime.code.loading import describe, place_in
from tidemill.runtime.code.lookout import Seen, watching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader


_SHUFFLES = "spark.sql.shuffle.partitions"
_CLOCKS = ("now", "today", "utcnow", "time", "time_ns", "random", "uuid4", "randint", "choice")
"""What Python code calls for the clock or chance."""


def analyse(
    spark: SparkSession,
    pipeline: Pipeline,
    schemas: dict[str, pa.Schema],
    event_times: dict[str, str],
    metas: set[str],
    *,
    tables: Mapping[str, pa.Schema] | None = None,
    seen: Seen | None = None,
    twice: bool = False,
) -> PipelineFacts:
    """Call the pipeline on empty streams with the right columns, and read the plans it makes.

    ``metas`` are the sources whose ``_meta`` column the YAML asks for; ``tables`` are the reference
    tables, of which only the columns are there. The files and variables that the code reads while
    it is called are added to ``seen``. ``twice``: refuse code that builds another plan when it is
    called again.
    """
    with _one_shuffle(spark), tempfile.TemporaryDirectory() as empty:
        frames = {
            source: _stub(
                spark.readStream.format("parquet").option("path", empty),
                pipeline_schema(schema, event_times[source], source in metas).append(
                    pa.field(SOURCE_MARK + source, pa.string())
                ),
                source,
                event_times[source],
            )
            for source, schema in schemas.items()
        }
        frames |= {name: table_frame(spark, name, found) for name, found in (tables or {}).items()}
        with building() as built, watching() as called, authoring() as authored:
            outputs = call_pipeline(pipeline, frames)
        seen = Seen() if seen is None else seen
        seen.add(called)
        plans = [_plans(spark, pipeline, name, frame) for name, frame in outputs.items()]
        facts = find_facts(plans, event_times, built.folds)
        lines, functions, told = list[str](), list[tuple[str, Any]](), list[OutputPlans]()
        for plan in plans:
            analysed = outputs[plan.name]._jdf.queryExecution().analyzed()
            tree = build_tree(plan.analysed)
            texts = spoken_nodes(spark, analysed)
            lines += _plan_lines(plan, texts, tree, seen)
            functions += carried_functions(analysed, tree)
            shown = map(conceal, tree.walk(), texts, repeat(secrets_in(seen.values())))
            written = authored.lines(spark, analysed, pipeline.sql)
            told.append(replace(plan, texts=tuple(shown), lines=tuple(written)))
        graph = _graph_of(told, event_times, built)
        if twice:
            _require_repeatable(pipeline, frames, plans, lines, seen)
    params = param_lines(pipeline.params)
    behaviour = (*params, *lines, *carried_lines(functions))
    return replace(facts, behaviour=behaviour, graph=graph)


def _graph_of(plans: list[OutputPlans], event_times: dict[str, str], built: Building) -> Graph:
    """The graph; an empty one where a plan has a shape that nobody has thought of.

    No decision is taken by a graph, so no run may fail for it. The command `graph` says it.
    """
    try:
        return find_graph(plans, event_times, built.folds)
    except Exception:
        logging.getLogger(__name__).warning("the graph cannot be drawn", exc_info=True)
        return Graph()


def _plan_lines(plan: OutputPlans, texts: list[str], tree: Tree, seen: Seen) -> list[str]:
    is_clock = bool(plan.clocks)
    return list(plan_lines(plan.name, tree, texts, seen.values(), clock=is_clock))


def _require_repeatable(
    pipeline: Pipeline,
    frames: dict[str, DataFrame],
    plans: list[OutputPlans],
    lines: list[str],
    seen: Seen,
) -> None:
    """Build the pipeline a second time: one that differs, as by the clock, could never be run.

    Every start builds it again, and goes on only with what was planned.
    """
    with building():
        outputs = call_pipeline(pipeline, frames)
    again: list[str] = []
    for plan in plans:
        analysed = outputs[plan.name]._jdf.queryExecution().analyzed()
        tree = build_tree(json.loads(analysed.toJSON()))
        texts = spoken_nodes(outputs[plan.name].sparkSession, analysed)
        again += _plan_lines(plan, texts, tree, seen)
    difference = first_difference(lines, again)
    if difference is not None:
        place = find_calls(pipeline.function, _CLOCKS)
        raise PlanError(
            "its code builds another plan each time it is called: "
            f"{describe_difference(*difference)}",
            where=_where(pipeline, place),
            fix="the code is called at every start, and must do the same: instead of the clock or "
            "chance use the event time, or a value of params: and --param",
        )


def _where(pipeline: Pipeline, place: str) -> str:
    return f"pipeline {pipeline.name}" + (f" ({place})" if place else "")


@contextmanager
def _one_shuffle(spark: SparkSession) -> Iterator[None]:
    """Fix the number of shuffle partitions: a plan must be the same in every session."""
    kept = spark.conf.get(_SHUFFLES)
    spark.conf.set(_SHUFFLES, "1")
    try:
        yield
    finally:
        spark.conf.set(_SHUFFLES, str(kept))


def call_pipeline(pipeline: Pipeline, frames: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """The pipeline's outputs by name; a single DataFrame is the output called ``output``."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import DataFrame

    where = f"pipeline {pipeline.name}"
    file = own_file(pipeline.function)
    try:
        given = {name: frames[name] for name in (*pipeline.streams, *pipeline.tables)}
        made = pipeline(**given, **pipeline.params)
    except (AnalysisException, ParseException) as error:
        text, place = _first_lines(error), place_in(error, file.parent) if file else ""
        is_action = ACTION.told in text
        raise PlanError(
            text,
            where=_where(pipeline, place),
            fix=ACTION.fix if is_action else f"correct {place or 'the pipeline'}",
        ) from None
    except TidemillError:
        raise
    except Exception as error:
        raise PlanError(
            f"its code failed: {describe(error, file.parent if file else Path())}",
            where=where,
            fix="correct the pipeline; --verbose shows the trace",
        ) from error
    outputs = {"output": made} if isinstance(made, DataFrame) else made
    if not isinstance(outputs, dict) or not outputs:
        raise PlanError(f"it returned {type(made).__name__}, not a DataFrame", where=where)
    for name, frame in outputs.items():
        if not isinstance(frame, DataFrame):
            raise PlanError(f"its output {name!r} is not a DataFrame", where=where)
        if not frame.isStreaming:
            raise PlanError(
                f"its output {name!r} does not come from a stream",
                where=where,
                fix="build outputs from the DataFrames the pipeline is given",
            )
    return outputs


def _first_lines(error: Any) -> str:
    text = str(error).split("JVM stacktrace")[0].split(";\n")[0]
    return " ".join(text.split())[:600]


def _stub(reader: DataStreamReader, schema: pa.Schema, source: str, event_time: str) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    frame = reader.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True)).load()
    return frame.withWatermark(event_time, "0 seconds").drop(SOURCE_MARK + source)


def _plans(spark: SparkSession, pipeline: Pipeline, name: str, frame: DataFrame) -> OutputPlans:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    analysed = frame._jdf.queryExecution().analyzed()
    catalyst = spark._jvm.org.apache.spark.sql
    try:
        catalyst.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            analysed, catalyst.streaming.OutputMode.Append()
        )
    except (AnalysisException, Py4JJavaError) as error:
        cause = cause_of(_first_lines(error))
        raise PlanError(
            f"Spark cannot run the output {name!r} as a stream: {_first_lines(error)}",
            where=_where(pipeline, find_calls(pipeline.function, cause.calls)),
            fix=cause.fix,
        ) from None
    optimised = spark._jsparkSession.sessionState().optimizer().execute(analysed)
    return OutputPlans(
        name,
        json.loads(analysed.toJSON()),
        json.loads(optimised.toJSON()),
        frame.schema.json(),
        find_clocks(spark, analysed),
        bool(analysed.deterministic()),
        find_rounded(analysed),
    )

"""Find out what a pipeline's code does, in a small Spark session; no data is read."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import PlanError, TidemillError
from tidemill.folds.building import Building, building
from tidemill.instances import Instances
from tidemill.pipeline import Pipeline
from tidemill.planning.code.analysis import OutputPlans, PipelineFacts, find_facts
from tidemill.planning.code.behaviour import (
    behaviour_line,
    conceal,
    describe_difference,
    first_difference,
    plan_lines,
    secrets_in,
)
from tidemill.planning.code.lineage import SOURCE_MARK
from tidemill.planning.code.params import param_lines
from tidemill.planning.code.tree import Tree, build_tree
from tidemill.planning.graph.finding import find_graph
from tidemill.planning.graph.nodes import Graph
from tidemill.reading.reference import table_frame
from tidemill.rows.columns import pipeline_schema
from tidemill.runtime.code.authored import authoring
from tidemill.runtime.code.calls import find_calls
from tidemill.runtime.code.carried import carried_lines
from tidemill.runtime.code.catalyst import (
    carried_functions,
    find_clocks,
    find_rounded,
    spoken_nodes,
)
from tidemill.runtime.code.failures import Failure, require_streamable, tell_failure
from tidemill.runtime.code.intercepting import (
    SINK,
    SOURCE,
    Examination,
    Look,
    intercept,
    unlooked,
)
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
    instances: Instances | None = None,
    seen: Seen | None = None,
    twice: bool = False,
) -> PipelineFacts:
    """Call the pipeline on empty streams with the right columns, and read the plans it makes.

    ``metas`` are the sources whose ``_meta`` column the YAML asks for; ``tables`` are the reference
    tables, and ``instances`` the pipeline's, of which only the columns are there. The files and
    variables that the code reads while it is called are added to ``seen``. ``twice``: refuse code
    that builds another plan when it is called again.
    """
    with _one_shuffle(spark), tempfile.TemporaryDirectory() as empty:
        frames: dict[str, Any] = {
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
        if pipeline.instances is not None:
            frames[pipeline.instances] = instances
        with building() as built, watching() as called, authoring() as authored:
            examined = Examination(event_times, built.folds)
            outputs = call_pipeline(pipeline, frames, examined)
        seen = Seen() if seen is None else seen
        seen.add(called)
        plans = [_plans(spark, pipeline, name, frame) for name, frame in outputs.items()]
        facts = find_facts(plans, event_times, built.folds, built.pairs)
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
    named = (f"interceptor {each.name}" for each in pipeline.interceptors)
    params = (*param_lines(pipeline.params), *map(behaviour_line, named))
    behaviour = (*params, *lines, *carried_lines(functions))
    return replace(facts, behaviour=behaviour, intercepted=examined.usages, graph=graph)


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
    frames: Mapping[str, Any],
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
        called = (pipeline.function, *(each.function for each in pipeline.interceptors))
        place = next(filter(None, (find_calls(each, _CLOCKS) for each in called)), "")
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


def call_pipeline(
    pipeline: Pipeline,
    frames: Mapping[str, Any],
    look: Look = unlooked,
    *,
    delivers: bool = False,
) -> dict[str, DataFrame]:
    """The pipeline's outputs by name; a single DataFrame is the output called ``output``.

    ``frames`` has what its arguments name: DataFrames, and its instances.
    Interceptors are called with every source before, and with every output after; ``look`` is told
    of each that changes something. ``delivers``: the output is what a fold's own tasks tell of the
    rows that they have written. Interceptors of the sink, which by the analysed plan add nothing,
    are then not called.
    """
    own = () if pipeline.instances is None else (pipeline.instances,)
    given = {name: frames[name] for name in (*pipeline.streams, *pipeline.tables, *own)}
    for name in pipeline.streams:
        given[name] = intercept(pipeline, SOURCE, name, given[name], look)
    outputs = _call_code(pipeline, given)
    if delivers:
        return outputs
    return {name: intercept(pipeline, SINK, name, frame, look) for name, frame in outputs.items()}


def _call_code(pipeline: Pipeline, given: Mapping[str, Any]) -> dict[str, DataFrame]:
    from pyspark.sql import DataFrame

    where = f"pipeline {pipeline.name}"
    try:
        made = pipeline(**given, **pipeline.params)
    except TidemillError:
        raise
    except Exception as error:
        raise _failed(pipeline, tell_failure(error, pipeline.function)) from error
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


def _failed(pipeline: Pipeline, told: Failure) -> PlanError:
    if told.is_sparks:
        fix = told.fix or f"correct {told.place or 'the pipeline'}"
        return PlanError(told.text, where=_where(pipeline, told.place), fix=fix)
    return PlanError(
        f"its code failed: {told.text}",
        where=f"pipeline {pipeline.name}",
        fix="correct the pipeline; --verbose shows the trace",
    )


def _stub(reader: DataStreamReader, schema: pa.Schema, source: str, event_time: str) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    frame = reader.schema(from_arrow_schema(schema, prefer_timestamp_ntz=True)).load()
    return frame.withWatermark(event_time, "0 seconds").drop(SOURCE_MARK + source)


def _plans(spark: SparkSession, pipeline: Pipeline, name: str, frame: DataFrame) -> OutputPlans:
    analysed = frame._jdf.queryExecution().analyzed()

    def refusal(message: str, fix: str, calls: tuple[str, ...]) -> PlanError:
        return PlanError(
            message, where=_where(pipeline, find_calls(pipeline.function, calls)), fix=fix
        )

    require_streamable(frame, refusal, f"the output {name!r}")
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

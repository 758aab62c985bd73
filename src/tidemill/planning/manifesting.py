"""From a plan to a manifest: what a run will do, said once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.config.sink import KafkaSink, is_topic
from tidemill.config.sparksettings import meaning
from tidemill.errors import PlanError
from tidemill.planning.chains import FoldPin
from tidemill.planning.manifest import Manifest, SinkPin
from tidemill.planning.plan import Beginning
from tidemill.planning.resources import parallelism, shuffles
from tidemill.types import Mode, micros_of, to_micros

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.config.sink import SinkConfig
    from tidemill.planning.plan import BackfillPlan, BackfillRequest


def pipeline_manifest(loaded: LoadedConfig, plan: BackfillPlan, run: str, cores: int) -> Manifest:
    """The manifest of a pipeline's run. A backfill writes into shadows, a live run does not.

    ``cores`` are the driver's machine's.
    """
    request = plan.request
    config = loaded.config.pipelines[request.pipeline]
    check_into(request, config)
    shadow = f"__{run}" if request.live is None else ""
    sinks = {
        name: _pin(request, config, sink, plan.facts.schemas[name], shadow)
        for name, sink in config.sinks.items()
    }
    first = next(iter(sinks.values())).table or _beside_topic(request, shadow)
    return Manifest(
        run=run,
        pipeline=request.pipeline,
        mode=_mode(request),
        config=str(loaded.path),
        fingerprint=plan.fingerprint,
        behaviour=plan.facts.behaviour,
        created=to_micros(plan.created),
        output=(to_micros(request.range.start), to_micros(request.range.end)),
        boundaries=plan.boundaries,
        sources=plan.pins,
        sinks=sinks,
        late_table=f"{first}__late",
        dead_table=f"{first}__dead",
        parallelism=parallelism(loaded.config.spark, cores),
        shuffles=shuffles(loaded.config.spark, cores),
        event_range_at_source=any(sink.time is None for sink in config.sinks.values()),
        rate=request.rate,
        expected_rows=plan.rows,
        folds={fold.use.name: _fold_pin(fold.pin, config) for fold in plan.facts.folds},
        spare=plan.facts.spare,
        buckets=config.buckets or shuffles(loaded.config.spark, cores),
        keep_batches=config.keep_batches,
        ends=request.live is None,
        misalignment=0 if request.live is None else micros_of(config.max_misalignment),
        settings=meaning(loaded.config.spark.conf),
    )


def _fold_pin(pin: FoldPin, config: PipelineConfig) -> FoldPin:
    """Rows of a topic are arranged by Spark before they are sent: it must see them."""
    return replace(pin, gives=False) if topics_of(config) else pin


def _mode(request: BackfillRequest) -> Mode:
    if request.live is None:
        return Mode.BACKFILL
    return Mode.HYBRID if request.live is Beginning.HISTORY else Mode.LIVE


def _pin(
    request: BackfillRequest, config: PipelineConfig, sink: SinkConfig, schema: str, shadow: str
) -> SinkPin:
    if isinstance(sink, KafkaSink):
        return SinkPin(
            table="",
            time=sink.time,
            partition_by="none",
            schema=schema,
            key=tuple(sink.key),
            kind="kafka",
            topic=request.into or sink.topic,
        )
    into = None if topics_of(config) else request.into
    return SinkPin(
        table=into or f"{sink.table}{shadow}",
        time=sink.time,
        partition_by=sink.partition_by,
        schema=schema,
        key=tuple(sink.key),
    )


def _beside_topic(request: BackfillRequest, shadow: str) -> str:
    """After what late and dead tables are named where the first output is a topic."""
    into = "" if request.into is None else f"__{request.into}"
    return f"tidemill.{re.sub(r'[^A-Za-z0-9_-]', '_', request.pipeline + (into or shadow))}"


def topics_of(config: PipelineConfig) -> list[str]:
    """The outputs that go to topics."""
    return [name for name, sink in config.sinks.items() if isinstance(sink, KafkaSink)]


def check_into(request: BackfillRequest, config: PipelineConfig) -> None:
    """``--into`` names the one place that there is to choose: a topic if there is one."""
    topics, into = topics_of(config), request.into
    if into is None:
        if topics and request.live is None:
            raise PlanError(
                f"the sink {topics[0]!r} is a topic: a backfill writes into a shadow until it is "
                "published, and a topic has none, its consumers would see the rows at once",
                where=f"pipeline {request.pipeline}",
                fix="name a topic for the rows of this backfill: --into TOPIC",
            )
        return
    if len(topics) > 1:
        raise PlanError(
            f"--into names one topic, the pipeline writes {len(topics)}",
            where=f"pipeline {request.pipeline}",
            fix="let a pipeline that is backfilled have one topic, and tables beside it",
        )
    if topics and not is_topic(into):
        raise PlanError(
            f"--into {into} cannot be a topic's name", fix="use letters, digits, '.', '_' and '-'"
        )
    if topics:
        return
    if len(config.sinks) > 1:
        raise PlanError(
            f"--into names one table, the pipeline has {len(config.sinks)} outputs",
            fix="leave --into out: every output gets a shadow of its own",
        )
    if not all(into.rpartition(".")):
        raise PlanError(f"--into {into} has no namespace", fix="write namespace.table")

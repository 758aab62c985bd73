"""From a plan to a manifest: what a run will do, said once."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.config.places import named_by_into, targets
from tidemill.config.sparksettings import meaning
from tidemill.errors import PlanError
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.manifest import (
    CodePin,
    InputNeeds,
    Manifest,
    Outputs,
    Resources,
    RunIdentity,
    RunTimes,
)
from tidemill.planning.plan import Beginning
from tidemill.planning.ranges import find_margins
from tidemill.planning.resources import parallelism, shuffles
from tidemill.types import Mode, micros_of, to_micros

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.planning.plan import RunPlan, RunRequest


def pipeline_manifest(loaded: LoadedConfig, plan: RunPlan, run: str, cores: int) -> Manifest:
    """The manifest of a pipeline's run. A backfill writes into shadows, a live run does not.

    ``cores`` are the driver's machine's.
    """
    request = plan.request
    config, spark = loaded.config.pipelines[request.pipeline], loaded.config.spark
    shadow = f"__{run}" if request.live is None else ""
    sinks = {
        name: config.sinks[name].pin(plan.facts.schemas[name], target)
        for name, target in find_targets(request, config, shadow).items()
    }
    first = next(iter(sinks.values())).table or _beside_pipeline(request, shadow)
    return Manifest(
        identity=RunIdentity(
            run,
            request.pipeline,
            _mode(request),
            to_micros(plan.created),
            risks=plan.risks,
            instances=None if plan.instances is None else plan.instances.pin,
        ),
        times=RunTimes(
            output=(to_micros(plan.output.start), to_micros(plan.output.end)),
            boundaries=plan.boundaries,
            ends=request.live is None,
            misalignment=0 if request.live is None else micros_of(config.live_misalignment),
            rate=request.rate,
            yields_to=request.yield_to,
            needs=InputNeeds(
                warm_up=micros_of(plan.margins.warm_up),
                look_ahead=_look_ahead(plan, config),
                settles=plan.settles,
            ),
        ),
        sources=plan.pins,
        outputs=Outputs(sinks, late_table=f"{first}__late", dead_table=f"{first}__dead"),
        resources=Resources(
            parallelism=parallelism(spark, cores),
            shuffles=shuffles(spark, cores),
            buckets=config.buckets or shuffles(spark, cores),
            keep_batches=config.keep_batches,
        ),
        code=CodePin(
            fingerprint=plan.fingerprint,
            behaviour=plan.facts.behaviour,
            settings=meaning(spark.conf),
            folds={fold.use.name: _fold_pin(fold.pin, config) for fold in plan.facts.folds},
            shapes={
                fold.use.name: fold.use.shape
                for fold in plan.facts.folds
                if fold.use.shape is not None
            },
            spare=plan.facts.spare,
            event_range_at_source=plan.instances is None
            and any(sink.time is None for sink in config.sinks.values()),
            params=plan.params,
        ),
        expect=plan.expect,
        tables=plan.tables,
    )


def _look_ahead(plan: RunPlan, config: PipelineConfig) -> int | None:
    """How much input after it a row needs; of a live run that begins with the log, by its code."""
    if plan.request.live in (None, Beginning.HISTORY):
        return micros_of(plan.margins.look_ahead)
    times = [(name, sink.time) for name, sink in config.sinks.items()]
    with contextlib.suppress(PlanError):  # what a backfill would have to ask for
        return micros_of(
            find_margins(plan.facts, times, config.warm_up, config.look_ahead).look_ahead
        )
    return None


def _fold_pin(pin: FoldPin, config: PipelineConfig) -> FoldPin:
    """Rows that Spark arranges before they are written: it must see them."""
    arranged = any(sink.is_arranged for sink in config.sinks.values())
    return replace(pin, gives=False) if arranged else pin


def _mode(request: RunRequest) -> Mode:
    if request.live is None:
        return Mode.BACKFILL
    return Mode.HYBRID if request.live is Beginning.HISTORY else Mode.LIVE


def _beside_pipeline(request: RunRequest, shadow: str) -> str:
    """After what late and dead tables are named where the first output is no table of ours."""
    into = "" if request.into is None else f"__{request.into}"
    return f"tidemill.{re.sub(r'[^A-Za-z0-9_-]', '_', request.pipeline + (into or shadow))}"


def find_targets(request: RunRequest, config: PipelineConfig, shadow: str = "") -> dict[str, str]:
    """The name of the place that each output is written to: its own, a shadow, or ``--into``.

    ``--into`` must name one place. A sink without a shadow needs it in a backfill.
    """
    bare = [name for name, sink in config.sinks.items() if not sink.has_shadow]
    noun = config.sinks[bare[0] if bare else next(iter(config.sinks))].noun
    named = named_by_into(config)
    if request.into is None:
        if bare and request.live is None:
            raise PlanError(
                f"the sink {bare[0]!r} is a {noun}: a backfill writes into a shadow until it is "
                f"published, and a {noun} has none, its consumers would see the rows at once",
                where=f"pipeline {request.pipeline}",
                fix=f"name a {noun} for the rows of this backfill: --into {noun.upper()}",
            )
    elif named is None and bare:
        raise PlanError(
            f"--into names one {noun}, the pipeline writes {len(bare)}",
            where=f"pipeline {request.pipeline}",
            fix=f"let a pipeline that is backfilled have one {noun}, and tables beside it",
        )
    elif named is None:
        raise PlanError(
            f"--into names one {noun}, the pipeline has {len(config.sinks)} outputs",
            fix="leave --into out: every output gets a shadow of its own",
        )
    else:
        config.sinks[named].check_target(request.into)
    return targets(config, request.into, shadow)

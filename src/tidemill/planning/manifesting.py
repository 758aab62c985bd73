"""From a plan to a manifest: what a run will do, said once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.errors import PlanError
from tidemill.planning.manifest import Manifest, SinkPin
from tidemill.planning.plan import Beginning
from tidemill.planning.resources import parallelism, shuffles
from tidemill.types import Mode, micros_of, to_micros

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.plan import BackfillPlan, BackfillRequest


def pipeline_manifest(loaded: LoadedConfig, plan: BackfillPlan, run: str) -> Manifest:
    """The manifest of a pipeline's run. A backfill writes into shadows, a live run does not."""
    request = plan.request
    config = loaded.config.pipelines[request.pipeline]
    _check_into(request, len(config.sinks))
    shadow = f"__{run}" if request.live is None else ""
    sinks = {
        name: SinkPin(
            table=request.into or f"{sink.table}{shadow}",
            time=sink.time,
            partition_by=sink.partition_by,
            schema=plan.facts.schemas[name],
            key=tuple(sink.key),
        )
        for name, sink in config.sinks.items()
    }
    first = next(iter(sinks.values())).table
    return Manifest(
        run=run,
        pipeline=request.pipeline,
        mode=_mode(request),
        config=str(loaded.path),
        fingerprint=plan.fingerprint,
        created=to_micros(plan.created),
        output=(to_micros(request.range.start), to_micros(request.range.end)),
        boundaries=plan.boundaries,
        sources=plan.pins,
        sinks=sinks,
        late_table=f"{first}__late",
        dead_table=f"{first}__dead",
        parallelism=parallelism(loaded.config.spark),
        shuffles=shuffles(loaded.config.spark),
        event_range_at_source=any(sink.time is None for sink in config.sinks.values()),
        rate=request.rate,
        expected_rows=plan.rows,
        folds={fold.use.name: fold.pin for fold in plan.facts.folds},
        spare=plan.facts.spare,
        buckets=config.buckets or shuffles(loaded.config.spark),
        keep_batches=config.keep_batches,
        ends=request.live is None,
        misalignment=0 if request.live is None else micros_of(config.max_misalignment),
    )


def _mode(request: BackfillRequest) -> Mode:
    if request.live is None:
        return Mode.BACKFILL
    return Mode.HYBRID if request.live is Beginning.HISTORY else Mode.LIVE


def _check_into(request: BackfillRequest, sinks: int) -> None:
    if request.into is not None and sinks > 1:
        raise PlanError(
            f"--into names one table, the pipeline has {sinks} outputs",
            fix="leave --into out: every output gets a shadow of its own",
        )
    if request.into is not None and not all(request.into.rpartition(".")):
        raise PlanError(f"--into {request.into} has no namespace", fix="write namespace.table")

"""Run corrected code over the dead rows of a run, and over no other rows.

It is a backfill like any other, and is resumed like one. Its sources read the rows of these
positions alone, and it writes beside the rows that the run has written. That is only right where
each row gives its output by itself: what else a row changes, only a backfill of the range can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError, RunError
from tidemill.planning.manifest import Manifest, Origin, RetriedRows
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.plan import RunPlan, RunRequest
from tidemill.runfolder.folder import new_run_id
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.reports.dead import dead_batches, retries_of
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.guards import one_start_at_a_time
from tidemill.runtime.starts.naming import asked_of
from tidemill.runtime.starts.starting import write_run
from tidemill.types import TimeRange, from_micros, show_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry

_MOST = 20_000
"""Positions that a filter of one run names."""
_SECOND = timedelta(seconds=1)


def prepare_dead_retry(
    loaded: LoadedConfig, registry: Registry, of: Manifest, spark: SparkSession | None = None
) -> Manifest:
    """Write down a run over the failed rows of a run that no run has taken yet."""
    now = datetime.now(UTC)
    taken = [rows for _, rows in retries_of(loaded, registry, of.outputs.dead_table)]
    rows, span = _failed(loaded, of, taken)
    request = RunRequest(
        of.pipeline,
        TimeRange(span.start - _SECOND, span.end),
        where=tuple(_filters(of, rows)),
        warm_up=timedelta(),  # the range is that of the ingest times, and no other row is read
        look_ahead=timedelta(),
        append=True,
        params=tuple((name, pin.read()) for name, pin in of.code.params.items()),
    )
    plan = make_plan(loaded, request, now, spark)
    _require_row_wise(of, plan, span)
    _require_there(plan, span)
    made = pipeline_manifest(loaded, plan, new_run_id(plan.created), local_cores())
    _require_same_outputs(of, made)
    made = replace(
        made.begun_as(None, asked_of(replace(request, where=()))),
        outputs=replace(made.outputs, sinks=of.outputs.sinks),
        times=replace(made.times, output=of.times.output),
    )
    origin = Origin(retries=RetriedRows(of.run, of.outputs.dead_table, rows))
    made = replace(made, identity=replace(made.identity, origin=origin))
    with one_start_at_a_time(loaded.home):
        again = [run for run, _ in retries_of(loaded, registry, of.outputs.dead_table)]
        if len(again) != len(taken):
            raise RunError(f"the run {again[-1]} has just taken these rows", fix="try again")
        write_run(loaded, made)
    return made


def _failed(
    loaded: LoadedConfig, of: Manifest, taken: Iterable[RetriedRows]
) -> tuple[dict[str, dict[str, tuple[int, ...]]], TimeRange]:
    """The positions of the rows to read again, and the ingest times between which they lie."""
    found, times, unplaced = dict[str, dict[str, set[int]]](), list[datetime](), 0
    for batch in dead_batches(loaded, of):
        for row in batch.drop_columns(["event_time", "row"]).to_pylist():
            if row["operator"] is None:
                continue  # its reader could not use it: no other code would
            if None in (row["source"], row["partition"], row["offset"], row["ingest_time"]):
                unplaced += 1
                continue
            position = row["source"], row["partition"], row["offset"]
            if not any(position in each for each in taken):
                of_source = found.setdefault(position[0], {})
                of_source.setdefault(str(position[1]), set()).add(position[2])
                times.append(row["ingest_time"])
    if unplaced:
        raise RunError(
            f"{unplaced:,} rows at which the code failed have no position in the log",
            where=f"table {of.outputs.dead_table}",
            fix=f"{_backfill(of)}. To retry rows by themselves, add meta: true to the pipeline's "
            "sources, keep the column _meta up to the udf, and name partition: and offset: in the "
            "stream's archive",
        )
    if not times:
        raise RunError(
            f"no row at which the code failed is left to be retried of the run {of.run}",
            where=f"table {of.outputs.dead_table}",
            fix=f"'tidemill dead show {of.run}' shows its dead rows",
        )
    if len(times) > _MOST:
        message = f"the code failed at {len(times):,} rows, too many to name"
        raise RunError(message, fix=_backfill(of))
    rows = {
        source: {partition: tuple(sorted(offsets)) for partition, offsets in each.items()}
        for source, each in found.items()
    }
    return rows, TimeRange(min(times), max(times) + _SECOND)


def _filters(of: Manifest, rows: Mapping[str, Mapping[str, tuple[int, ...]]]) -> Iterable[str]:
    """A filter per source: those of the run, and the positions; no row of any other source."""
    for name, pin in of.sources.items():
        partition, offset = pin.rows.partition, pin.rows.offset
        chosen = [
            f"({partition} = {number} and {offset} in ({', '.join(map(str, offsets))}))"
            for number, offsets in rows.get(name, {}).items()
        ]
        positions = " or ".join(chosen) or f"{pin.times.ingest_time} is null"
        filters = [f"({positions})"] + ([f"({pin.rows.where})"] if pin.rows.where else [])
        yield f"{name}: {' and '.join(filters)}"


def _backfill(of: Manifest, span: TimeRange | None = None) -> str:
    """What to do where rows cannot be retried by themselves."""
    times = "--from TIME --to TIME"
    if span is not None:
        times = f"--from {show_instant(span.start)} --to {show_instant(span.end)}"
    return (
        f"correct the code, 'tidemill backfill {of.pipeline} {times}' over what the rows may have "
        "changed, then 'tidemill publish RUN'"
    )


def _require_row_wise(of: Manifest, plan: RunPlan, span: TimeRange) -> None:
    """Refuse code in which a row changes more than its own output."""
    if plan.facts.stateful:
        names = ", ".join(plan.facts.stateful)
        raise PlanError(
            f"the pipeline is not row-wise: it uses {names}, where a row changes what others give",
            where=f"pipeline {of.pipeline}",
            fix=_backfill(of, span),
        )


def _require_there(plan: RunPlan, span: TimeRange) -> None:
    """Refuse to read an archive that does not reach the rows."""
    ends = [each.last for found in plan.statistics.values() for each in found.extents]
    newest = span.end - _SECOND
    if not ends or from_micros(max(ends)) < newest:
        raise RunError(
            f"the archive does not reach the newest of the rows, of {show_instant(newest)}",
            fix="let 'tidemill archive run' follow the log that far, then try again",
        )


def _require_same_outputs(of: Manifest, made: Manifest) -> None:
    """Refuse code that gives other columns than the tables have."""
    ours: dict[str, Any] = {name: pin.schema for name, pin in made.outputs.sinks.items()}
    theirs = {name: pin.schema for name, pin in of.outputs.sinks.items()}
    for name in ours.keys() | theirs.keys():
        if ours.get(name) != theirs.get(name):
            raise PlanError(
                f"the corrected code gives other columns in the output {name!r}",
                where=f"pipeline {of.pipeline}",
                fix=_backfill(of),
            )

"""What the CLI, the page and a user's Python call: load, plan, backfill, resume, runs, status."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.archive.catalog import load_table, open_catalog, pin_snapshot
from tidemill.config import ProjectConfig, load_config
from tidemill.config.loader import LoadedConfig
from tidemill.errors import PlanError, RunError
from tidemill.planning.manifest import Manifest, SinkPin
from tidemill.planning.plan import BackfillPlan, BackfillRequest
from tidemill.runtime.lease import hold_lease, is_held
from tidemill.runtime.planner import (
    code_fingerprint,
    make_plan,
    parallelism,
    require_pipeline,
    shuffles,
)
from tidemill.runtime.registry import BatchRecord, Registry, RunRecord, RunState, RunTotals
from tidemill.runtime.run import RunFolder, new_run_id
from tidemill.sources.control import read_control, update_control
from tidemill.sources.opening import keep_metadata
from tidemill.types import (
    FOREVER,
    Mode,
    TimeRange,
    from_micros,
    parse_duration,
    parse_instant,
    show_instant,
    to_micros,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from tidemill.runtime.latereport import LateReport
    from tidemill.runtime.rewind import Rewound
    from tidemill.runtime.states import RunStates, StateSummary

When = datetime | str
Length = timedelta | str


@dataclass(frozen=True)
class Progress:
    """Where a run stands, after a batch."""

    manifest: Manifest
    totals: RunTotals
    batch: BatchRecord | None

    @property
    def slices_done(self) -> int:
        """Slices that every source has passed."""
        frontier = self.totals.frontier
        if frontier is None:
            return 0
        return sum(1 for f in self.manifest.frontiers[1:] if f <= frontier)

    @property
    def slices(self) -> int:
        """All slices of the run."""
        return len(self.manifest.frontiers) - 1

    @property
    def share(self) -> float:
        """The part of the input's range that is done, 0 to 1."""
        low, high = self.manifest.boundaries[0], self.manifest.boundaries[-1]
        frontier = min(self.totals.frontier or low, high)
        return (frontier - low) / (high - low) if high > low else 1.0

    @property
    def watermark(self) -> datetime | None:
        """Spark's watermark, once it has one."""
        found = self.totals.watermark
        if not found:
            return None
        micros = found * 1_000
        return FOREVER if micros > self.manifest.boundaries[-1] else from_micros(micros)


@dataclass(frozen=True)
class RunResult:
    """How a run ended, or how it stands."""

    run: str
    pipeline: str
    state: RunState
    outputs: dict[str, str]
    late: str
    dead: str
    totals: RunTotals
    slices: int
    slices_done: int
    seconds: float
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        totals = self.totals
        return {
            "run": self.run,
            "pipeline": self.pipeline,
            "state": str(self.state),
            "tables": {"outputs": self.outputs, "late": self.late, "dead": self.dead},
            "rows": {
                "in": totals.read,
                "on_time": totals.on_time,
                "late": totals.late,
                "dead": totals.dead,
                "out": totals.out,
                "suppressed": totals.suppressed,
            },
            "slices": self.slices,
            "slices_done": self.slices_done,
            "frontier": _shown(totals.frontier),
            "seconds": round(self.seconds, 3),
            "error": self.error,
        }


def _shown(frontier: int | None) -> str | None:
    return None if frontier is None else show_instant(from_micros(frontier))


class Project:
    """One tidemill.yaml and everything that can be done with it."""

    def __init__(self, loaded: LoadedConfig) -> None:
        """Nothing is opened yet."""
        self.loaded = loaded

    @property
    def config(self) -> ProjectConfig:
        """The checked configuration."""
        return self.loaded.config

    @property
    def registry(self) -> Registry:
        """The project's runs."""
        return Registry(self.loaded.home / "registry.db")

    def plan(
        self,
        pipeline: str,
        start: When,
        end: When,
        *,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> BackfillPlan:
        """The dry run: what a backfill of ``[start, end)`` would read, in which slices.

        Options are the fields of :class:`BackfillRequest`; durations may be text.
        """
        return make_plan(
            self.loaded, request(pipeline, start, end, **options), datetime.now(UTC), spark
        )

    def backfill(
        self,
        pipeline: str,
        start: When,
        end: When,
        *,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> RunResult:
        """Recompute ``[start, end)`` from the archive, exactly once, by default into a shadow.

        ``on_start`` gets the manifest before anything runs; ``on_progress`` comes after each
        batch. Options as in :meth:`plan`.
        """
        plan = self.plan(pipeline, start, end, spark=spark, **options)
        manifest = self.prepare(plan)
        on_start(manifest)
        return self._execute(manifest, on_progress, spark)

    def prepare(self, plan: BackfillPlan) -> Manifest:
        """Fix a plan as a run: manifest, registry, tags. Nothing is computed yet.

        All of it or nothing: what cannot be finished is taken back.
        """
        run = new_run_id(plan.created)
        manifest = self._manifest(plan, run)
        folder = RunFolder.of(self.loaded.home, run)
        catalog = open_catalog(self.loaded)
        try:
            self._write_run(manifest, folder, catalog)
        except BaseException as error:
            self._take_back(manifest, folder, catalog)
            if not isinstance(error, OSError):
                raise
            raise RunError(
                f"the run cannot be written: {error.strerror or error}",
                where=str(error.filename or folder.path),
                fix="free space or give write permission, or set home: in the YAML",
            ) from None
        return manifest

    def _write_run(self, manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
        """The registry knows the run before it has tags, so that `cancel` finds them."""
        folder.write_manifest(manifest)
        self.registry.add(manifest.run, manifest.pipeline, manifest.mode)
        for name, pin in manifest.sources.items():
            if pin.kind == "iceberg" and pin.snapshot is not None:
                table = load_table(catalog, pin.location, f"stream {pin.stream}")
                pin_snapshot(table, pin.snapshot, manifest.run)
            keep_metadata(pin, catalog, folder.table(name))

    def _take_back(self, manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
        """Remove what is there of a run that could not be written; what fails here stays."""
        from tidemill.runtime.executor import release

        with contextlib.suppress(Exception):
            release(catalog, manifest)
        with contextlib.suppress(Exception):
            self.registry.remove(manifest.run)
        shutil.rmtree(folder.path, ignore_errors=True)

    def _manifest(self, plan: BackfillPlan, run: str) -> Manifest:
        config = require_pipeline(self.loaded, plan.request.pipeline)
        if plan.request.into is not None and len(config.sinks) > 1:
            raise PlanError(
                f"--into names one table, the pipeline has {len(config.sinks)} outputs",
                fix="leave --into out: every output gets a shadow of its own",
            )
        if plan.request.into is not None and not all(plan.request.into.rpartition(".")):
            raise PlanError(
                f"--into {plan.request.into} has no namespace", fix="write namespace.table"
            )
        sinks = {
            name: SinkPin(
                table=plan.request.into or f"{sink.table}__{run}",
                time=sink.time,
                partition_by=sink.partition_by,
                schema=plan.facts.schemas[name],
                key=tuple(sink.key),
            )
            for name, sink in config.sinks.items()
        }
        first = next(iter(sinks.values())).table
        low, high = to_micros(plan.request.range.start), to_micros(plan.request.range.end)
        return Manifest(
            run=run,
            pipeline=plan.request.pipeline,
            mode=Mode.BACKFILL,
            config=str(self.loaded.path),
            fingerprint=plan.fingerprint,
            created=to_micros(plan.created),
            output=(low, high),
            boundaries=plan.boundaries,
            sources=plan.pins,
            sinks=sinks,
            late_table=f"{first}__late",
            dead_table=f"{first}__dead",
            parallelism=parallelism(self.config.spark),
            shuffles=shuffles(self.config.spark),
            event_range_at_source=any(sink.time is None for sink in config.sinks.values()),
            rate=plan.request.rate,
            expected_rows=plan.rows,
            folds={fold.use.name: fold.pin for fold in plan.facts.folds},
            spare=plan.facts.spare,
            buckets=config.buckets or shuffles(self.config.spark),
            keep_batches=config.keep_batches,
        )

    def resume(
        self,
        run: str,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        spark: SparkSession | None = None,
    ) -> RunResult:
        """Go on exactly where a run stopped or died; a paused run is let go on."""
        record = self.registry.get(run)
        folder = RunFolder.of(self.loaded.home, run)
        manifest = folder.read_manifest()
        if record.state in (RunState.FINISHED, RunState.CANCELLED):
            raise RunError(
                f"the run {run} is {record.state}", fix="start a new one with 'tidemill backfill'"
            )
        if record.state is RunState.RUNNING and is_held(folder.path):
            if _is_paused(folder):
                update_control(folder.path, paused=False)
                return self.status(run)
        elif code_fingerprint(self.loaded, manifest.pipeline) != manifest.fingerprint:
            raise RunError(
                f"the code of {manifest.pipeline!r} changed since the run was planned",
                fix="restore it, or start a new backfill; old and new rows must not be mixed",
            )
        return self._execute(manifest, on_progress, spark)

    def _execute(
        self,
        manifest: Manifest,
        on_progress: Callable[[Progress], None],
        spark: SparkSession | None,
    ) -> RunResult:
        from tidemill.runtime.executor import execute

        registry = self.registry

        def report(batch: BatchRecord) -> None:
            on_progress(Progress(manifest, registry.totals(manifest.run), batch))

        execute(self.loaded, RunFolder.of(self.loaded.home, manifest.run), registry, report, spark)
        return self.status(manifest.run)

    def rewind(self, run: str, batch: int | None = None) -> Rewound:
        """Take a run that is not driven back to a batch; `resume` runs the ones after it again.

        Without a batch: to the last one whose state is whole. Tables keep what they have.
        """
        from tidemill.runtime.rewind import rewind

        record = self.registry.get(run)
        folder = RunFolder.of(self.loaded.home, run)
        manifest = folder.read_manifest()
        if record.state in (RunState.FINISHED, RunState.CANCELLED):
            raise RunError(f"the run {run} is {record.state}: there is nothing to repeat")
        with hold_lease(folder.path, run):
            found = rewind(folder, manifest, batch)
            self.registry.set_state(run, RunState.STOPPED)
        return found

    def pause(self, run: str) -> RunResult:
        """Hold a running run after its current slice; it keeps its place and its driver."""
        self._require_driven(run)
        update_control(RunFolder.of(self.loaded.home, run).path, paused=True)
        return self.status(run)

    def cancel(self, run: str) -> RunResult:
        """End a run for good: the current slice is committed, nothing more, pins are let go."""
        record = self.registry.get(run)
        folder = RunFolder.of(self.loaded.home, run)
        if record.state in (RunState.FINISHED, RunState.CANCELLED):
            raise RunError(f"the run {run} is {record.state} already")
        if is_held(folder.path):
            update_control(folder.path, cancelled=True)
        else:
            from tidemill.runtime.executor import release

            release(open_catalog(self.loaded), folder.read_manifest())
            self.registry.set_state(run, RunState.CANCELLED)
        return self.status(run)

    def _require_driven(self, run: str) -> None:
        record = self.registry.get(run)
        if not is_held(RunFolder.of(self.loaded.home, run).path):
            raise RunError(f"the run {run} is not running, it is {record.state}")

    def runs(self) -> list[RunRecord]:
        """All runs, oldest first; one whose driver died is shown as failed."""
        return [self._honest(record) for record in self.registry.runs()]

    def _honest(self, record: RunRecord) -> RunRecord:
        if record.state is not RunState.RUNNING:
            return record
        folder = RunFolder.of(self.loaded.home, record.run)
        if is_held(folder.path):
            paused = read_control(folder.path).paused
            return replace(record, state=RunState.PAUSED) if paused else record
        return replace(record, state=RunState.FAILED, error="its driver died; resume it")

    def status(self, run: str) -> RunResult:
        """One run: state, tables, rows."""
        record = self._honest(self.registry.get(run))
        manifest = RunFolder.of(self.loaded.home, run).read_manifest()
        totals = self.registry.totals(run)
        progress = Progress(manifest, totals, None)
        return RunResult(
            run=run,
            pipeline=record.pipeline,
            state=record.state,
            outputs={name: sink.table for name, sink in manifest.sinks.items()},
            late=manifest.late_table,
            dead=manifest.dead_table,
            totals=totals,
            slices=progress.slices,
            slices_done=progress.slices_done,
            seconds=record.seconds,
            error=record.error,
        )

    def late(self, pipeline_or_run: str, source: str | None = None) -> LateReport:
        """The late rows of a run, or of a pipeline's latest run that has a late table."""
        from tidemill.runtime.late import read_late

        return read_late(self.loaded, self.registry, pipeline_or_run, source)

    def state(
        self, run: str, operator: str | None = None, batch: int | None = None
    ) -> list[StateSummary]:
        """What each fold of a run keeps, as of a kept batch; by default the last whole one.

        A finished run has closed everything: its last state is empty, earlier ones are not.
        """
        return self._states(run).summaries(operator, batch)

    def state_of(
        self, run: str, key: Any, operator: str | None = None, batch: int | None = None
    ) -> pa.Table:
        """The state rows of one key: a list with a value per key column, or the only value.

        Text is read by the column's type. The schema's metadata says which state it is, as JSON.
        """
        values = key if isinstance(key, list | tuple) else [key]
        return self._states(run).rows_of(values, operator, batch)

    def _states(self, run: str) -> RunStates:
        from tidemill.runtime.states import RunStates

        self.registry.get(run)
        return RunStates(RunFolder.of(self.loaded.home, run))


def _is_paused(folder: RunFolder) -> bool:
    return read_control(folder.path).paused


def request(pipeline: str, start: When, end: When, **options: Any) -> BackfillRequest:
    """A request from values as people give them."""
    for name in ("slice", "warm_up", "look_ahead"):
        if options.get(name) is not None:
            options[name] = parse_duration(options[name])
    for name in ("regions", "where"):
        given = options.get(name)
        if given is not None:
            options[name] = (given,) if isinstance(given, str) else tuple(given)
    if options.get("slice") is not None and options.get("slice_rows") is not None:
        raise PlanError("--slice and --slice-rows exclude each other", fix="give one of them")
    rate = options.get("rate")
    if rate is not None and rate <= 0:
        raise PlanError(f"--rate {rate} is not a positive number of rows per second")
    return BackfillRequest(pipeline, TimeRange(_moment(start), _moment(end)), **options)


def _moment(value: When) -> datetime:
    return parse_instant(value) if isinstance(value, str) else value


def load(path: str | Path = "tidemill.yaml") -> Project:
    """Read and check a project's YAML."""
    return Project(load_config(path))


__all__: Sequence[str] = ["Progress", "Project", "RunResult", "load", "request"]

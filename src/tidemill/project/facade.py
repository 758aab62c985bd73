"""What the CLI, the page and a user's Python call: load, plan, backfill, resume, runs, status."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import load_config
from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest
from tidemill.planning.plan import RunPlan
from tidemill.planning.requests import Goal, Length, Until, When, request, run_request
from tidemill.project.orders import Orders
from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.code.binding import require_same_params
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import (
    OVER,
    BatchRecord,
    RunState,
)
from tidemill.runtime.reports.activity import Tell, telling, untold
from tidemill.runtime.reports.results import Progress, RunResult
from tidemill.runtime.spark.settings import require_same_meaning
from tidemill.types import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.archive.desk import ArchiveDesk
    from tidemill.planning.graph.nodes import Graph
    from tidemill.review.desk import ReviewDesk
    from tidemill.review.gaps import GapReport
    from tidemill.runtime.instances.desk import InstancesDesk
    from tidemill.runtime.starts.again import Retried
    from tidemill.runtime.starts.carrydesk import CarryDesk
    from tidemill.runtime.starts.starting import Starter


class Project(Orders):
    """One tidemill.yaml and everything that can be done with it."""

    def plan(
        self,
        pipeline: str,
        start: When | None = None,
        end: When | None = None,
        *,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> RunPlan:
        """The dry run: what a backfill of ``[start, end)`` would read, in which slices.

        Options are the fields of :class:`RunRequest`; durations may be text. ``params`` are values
        of the pipeline's parameters by name, before those of the YAML. ``instances`` are ids: then
        the range may be left out, because an instance is always computed whole.
        """
        asked = request(pipeline, start, end, **options)
        return make_plan(self.loaded, asked, datetime.now(UTC), spark)

    def graph(
        self,
        pipeline: str,
        *,
        params: Mapping[str, Any] | None = None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
    ) -> Graph:
        """The pipeline's sources, operators and outputs; of code that a plan knows without Spark.

        ``params`` are values of the pipeline's parameters by name, before those of the YAML.
        """
        from tidemill.runtime.plans.graphing import make_graph

        now, tell = datetime.now(UTC), telling(on_activity)
        return make_graph(self.loaded, pipeline, now, params or {}, spark=spark, tell=tell)

    def backfill(
        self,
        pipeline: str,
        start: When | None = None,
        end: When | None = None,
        *,
        name: str | None = None,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> RunResult:
        """Recompute ``[start, end)`` from the archive, exactly once, by default into a shadow.

        ``on_start`` gets the manifest before anything runs; ``on_progress`` is called after each
        batch, ``on_activity`` also in between, with what the run does then. Options as in
        :meth:`plan`. With a ``name``, the run of that name is continued if there is one; if it is
        finished already, its result says so, and nothing is done.
        """
        asked = request(pipeline, start, end, **options)
        tell = telling(on_activity)
        manifest = self._starter(tell).begin(asked, name, spark)
        if self.registry.get(manifest.run).state is RunState.FINISHED:
            return self._finished_before(manifest)
        self._announce(manifest, on_start)
        return self.resume(manifest.run, on_progress=on_progress, on_activity=tell, spark=spark)

    def _finished_before(self, manifest: Manifest) -> RunResult:
        """The result of a run that was finished already; what it wrote may be gone since."""
        from tidemill.runtime.reports.rows import missing_tables

        found = self.status(manifest.run)
        gone = missing_tables(self.loaded, self.registry, manifest).values()
        told = tuple(
            f"the table {table}, which the run has written, is gone: 'tidemill forget "
            f"{manifest.run}' first, and the same command computes it again"
            for table in gone
        )
        return replace(found, already_finished=True, warnings=(*found.warnings, *told))

    def gaps(self, pipeline: str, start: When, end: When, **options: Any) -> GapReport:
        """Where the archive has input and production has no output, or no run has covered it."""
        return self.review.gaps(pipeline, start, end, **options)

    def prepare(self, plan: RunPlan, name: str | None = None) -> Manifest:
        """Make a run of a plan: write manifest, registry entry and tags. Nothing is computed yet.

        If a step fails, the steps before it are undone.
        """
        return self._starter().prepare(plan, name)

    def prepare_retry(
        self, run: str, *, spark: SparkSession | None = None, append: bool = False
    ) -> Retried:
        """Prepare a backfill again that failed or was cancelled, under a new id, for `resume`.

        It has the same manifest (pins, range, parameters), or it says why it was planned anew.
        """
        from tidemill.runtime.starts.again import prepare_again

        return prepare_again(self.loaded, run, spark, append=append)

    def retry_dead(
        self,
        run: str,
        *,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
    ) -> RunResult:
        """Run the corrected code over the rows at which that of ``run`` failed, and no others.

        The rows that it gives are added to those of the run. Only for row-wise pipelines whose
        dead rows have positions; for others the error says what to do.
        """
        from tidemill.runtime.starts.deadretry import prepare_dead_retry

        of = self._folder(self.registry.get(run).run).read_manifest()
        manifest = prepare_dead_retry(self.loaded, self.registry, of, spark)
        self._announce(manifest, on_start)
        return self.resume(
            manifest.run, on_progress=on_progress, on_activity=on_activity, spark=spark
        )

    def catch_up(self, run: str, cohort: int, **driving: Any) -> RunResult:
        """Drive the child that catches a cohort of instances up; it is written down if need be.

        The driver of the live run calls it in a process of its own.
        """
        from tidemill.runtime.starts.child import prepare_child

        child = prepare_child(self.loaded, self.registry.get(run).run, cohort)
        if self.registry.get(child.run).state in OVER:
            return self.status(child.run)
        return self.resume(child.run, **driving)

    def _starter(self, tell: Tell = untold) -> Starter:
        """What writes runs down; only commands that do need it, with all that it imports."""
        from tidemill.runtime.starts.starting import Starter

        return Starter(self.loaded, tell)

    def plan_run(
        self,
        pipeline: str,
        start: When | None = None,
        *,
        begin: str = "latest",
        spark: SparkSession | None = None,
        **options: Any,
    ) -> RunPlan:
        """The plan of :meth:`run`: the seam, and the slices of history before it."""
        asked = run_request(pipeline, start, begin, **options)
        return make_plan(self.loaded, asked, datetime.now(UTC), spark)

    def run(
        self,
        pipeline: str,
        start: When | None = None,
        *,
        begin: str = "latest",
        until: Until | None = None,
        name: str | None = None,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> RunResult:
        """Run live; with ``start``, first over history from there, then live, in one query.

        Without ``start`` it begins at the log's end (``begin="earliest"``: at its first row). It
        runs until it is stopped, or until the goal ``until`` is reached. It writes directly into
        the sinks' tables, unless ``into`` names another one. With a ``name``, the run of that name
        is continued if there is one.
        """
        tell = telling(on_activity)
        asked = run_request(pipeline, start, begin, **options)
        manifest = self._starter(tell).begin(asked, name, spark)
        self._announce(manifest, on_start)
        return self.resume(
            manifest.run, until=until, on_progress=on_progress, on_activity=tell, spark=spark
        )

    def prepare_run(
        self,
        pipeline: str,
        start: When | None = None,
        *,
        begin: str = "latest",
        name: str | None = None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> Manifest:
        """Write the manifest of :meth:`run`, or find the run of that name, for `resume`."""
        asked = run_request(pipeline, start, begin, **options)
        return self._starter(telling(on_activity)).begin(asked, name, spark)

    def prepare_recovery(
        self,
        pipeline: str,
        lost: str = "latest",
        *,
        name: str | None = None,
        changed_code: bool = False,
        spark: SparkSession | None = None,
        **options: Any,
    ) -> Manifest:
        """Prepare a run that continues one whose checkpoint is lost, after its last commit.

        Its state is rebuilt from the archive; rows that the lost run wrote are not written again.
        ``lost`` is that run's id or name, or the latest run that wrote the pipeline's tables. The
        new run takes over its name, or gets another. Code that does something else than that of the
        lost run is refused, unless ``changed_code`` accepts it.
        """

        def plan(start: datetime) -> RunPlan:
            return self.plan_run(pipeline, start, spark=spark, **options)

        return self._starter().recover(plan, lost, name, changed_code=changed_code)

    def run_archive(
        self,
        streams: Sequence[str],
        *,
        trigger: Length = "1 s",
        until: Until | None = None,
        name: str | None = None,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
    ) -> RunResult:
        """Follow live logs into their archives, exactly once, every record.

        If columns were inferred and records get new fields, another run continues with these.
        """
        manifest = self.prepare_archive_run(streams, trigger=trigger, name=name)
        self._announce(manifest, on_start)
        return self.resume(
            manifest.run,
            until=until,
            on_start=on_start,
            on_progress=on_progress,
            on_activity=on_activity,
            spark=spark,
        )

    def prepare_archive_run(
        self, streams: Sequence[str], *, trigger: Length = "1 s", name: str | None = None
    ) -> Manifest:
        """Prepare an archive run, which begins where the archive ends.

        Or find the run of that name, for `resume`.
        """
        return self._starter().follow(streams, parse_duration(trigger), name)

    def has_grown(self, run: str) -> bool:
        """Whether a run ended because records have new fields, so that another must continue."""
        return read_control(self._folder(run).path).grown

    def prepare_grown(self, manifest: Manifest) -> Manifest:
        """Prepare the run that continues, under the same name, a run that has met new fields."""
        return self._starter().outgrow(manifest)

    def log_risks(self, manifest: Manifest) -> tuple[str, ...]:
        """Which promises are weaker because of the kind of time in a run's topics."""
        from tidemill.runtime.plans.liveplan import log_risks

        return log_risks(self.loaded, manifest.sources)

    def supervised(self, run: str) -> contextlib.AbstractContextManager[Callable[[], bool]]:
        """Lock a run for a supervisor; yields a function that says whether somebody ended it."""
        from tidemill.runtime.driving.orders import supervised

        return supervised(self.loaded, self.registry, run)

    def resume(
        self,
        run: str,
        *,
        until: Until | None = None,
        params: Mapping[str, Any] | None = None,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_activity: Tell = untold,
        spark: SparkSession | None = None,
    ) -> RunResult:
        """Continue exactly where a run stopped or died; a paused run is released.

        The run keeps the values of its parameters, whatever the YAML says now; other ``params`` are
        refused.

        If an archive run meets new fields, another run continues it; ``on_start`` gets the manifest
        of that run.
        """
        record = self.registry.get(run)
        folder = self._folder(record.run)
        manifest = folder.read_manifest()
        if record.state in OVER:
            from tidemill.runtime.starts.handover import require_own

            require_own(folder, self.registry)
            verb = "backfill" if manifest.times.ends else "run"
            raise RunError(
                f"the run {record.run} is {record.state}",
                fix=f"start a new one with 'tidemill {verb} {record.pipeline}'",
            )
        require_same_params(manifest, params or {})
        require_same_meaning(manifest, self.config.spark)
        is_driven = record.state is RunState.RUNNING and is_held(folder.path)
        if is_driven and read_control(folder.path).paused:
            update_control(folder.path, paused=False)
            return self.status(record.run)
        if record.state is RunState.PLANNED:
            self._starter().complete(manifest, folder)
        tell = telling(on_activity)
        result = self._execute(manifest, on_progress, spark, until, tell)
        while self.has_grown(manifest.run) and not is_watched(folder.path):
            manifest = self.prepare_grown(manifest)
            self._announce(manifest, on_start)
            result = self._execute(manifest, on_progress, spark, until, tell)
        return result

    def _announce(self, manifest: Manifest, on_start: Callable[[Manifest], None]) -> None:
        """Call ``on_start`` for a run that is about to begin; if that fails, the run has failed."""
        try:
            on_start(manifest)
        except BaseException as error:
            if not is_held(self._folder(manifest.run).path):
                why = f"on_start failed: {type(error).__name__}: {error}"
                self.registry.set_state(manifest.run, RunState.FAILED, self.loaded.redact(why))
            raise

    def _execute(
        self,
        manifest: Manifest,
        on_progress: Callable[[Progress], None],
        spark: SparkSession | None,
        until: Until | None,
        tell: Tell,
    ) -> RunResult:
        from tidemill.runtime.driving.executor import execute

        registry = self.registry

        def report(batch: BatchRecord) -> None:
            on_progress(Progress(manifest, registry.totals(manifest.run), batch))

        goal = self.goal(manifest, until)
        folder = self._folder(manifest.run)
        execute(self.loaded, folder, registry, report, spark=spark, goal=goal, tell=tell)
        return self.status(manifest.run)

    def goal(self, manifest: Manifest, until: Until | None) -> Goal | None:
        """When a run that begins now stops by itself."""
        if until is None:
            return None
        from tidemill.runtime.plans.liveplan import complete_logs

        now, pins = datetime.now(UTC), manifest.sources.values()
        return until.goal(now, complete_logs(self.loaded, pins) if until.caught_up else None)

    def carry(self, run: str) -> CarryDesk:
        """What is done with the state of a live run: export it, upgrade the run."""
        from tidemill.runtime.starts.carrydesk import CarryDesk

        return CarryDesk(self.loaded, self.registry.get(run).run, self.resume)

    def archive(self, stream: str) -> ArchiveDesk:
        """The archive of a stream, to look at, check, compact or expire."""
        from tidemill.archive.desk import ArchiveDesk

        return ArchiveDesk(self.loaded, stream)

    def instances(self, pipeline: str) -> InstancesDesk:
        """The instances of a pipeline, to add, look at and withdraw."""
        from tidemill.runtime.instances.desk import InstancesDesk
        from tidemill.runtime.plans.planner import require_pipeline

        require_pipeline(self.loaded, pipeline)
        return InstancesDesk(self.loaded, self.registry, pipeline)

    def instances_with(self, instance: str) -> InstancesDesk:
        """The instances of the pipeline that has the one with this id."""
        from tidemill.runtime.instances.desk import find_desk

        return find_desk(self.loaded, self.registry, instance)

    @property
    def review(self) -> ReviewDesk:
        """Compare what runs wrote, publish it, put it back."""
        from tidemill.review.desk import ReviewDesk

        return ReviewDesk(self.loaded, self.registry)


def load(path: str | Path = "tidemill.yaml") -> Project:
    """Read and check a project's YAML."""
    return Project(load_config(path))

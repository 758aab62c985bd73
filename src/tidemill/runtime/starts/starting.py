"""Start runs: of pipelines and of archives; the run of a name goes on, if there is one.

A run is written down before it starts: manifest, registry, tags, pinned metadata; all or nothing.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.archives.opening import archive_of, is_kept, keep_metadata
from tidemill.connectors.sinks.contract import SinkRun, open_places
from tidemill.errors import PlanError, RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.carrying import begin_with, require_fit
from tidemill.planning.manifest import Manifest
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.plan import RunPlan, RunRequest
from tidemill.runfolder.folder import RunFolder, new_run_id
from tidemill.runfolder.offset_log import has_log
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import RunState, open_registry
from tidemill.runtime.reports.activity import Activity, ActivityKind, Tell, untold
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.archive_run import (
    archive_run_asked,
    archive_run_manifest,
    archive_run_name,
)
from tidemill.runtime.starts.carrying import StateFile, secure_log, write_carried
from tidemill.runtime.starts.guards import (
    not_written,
    one_start_at_a_time,
    require_live,
    require_not_beyond,
    require_only_live_run,
    require_place,
)
from tidemill.runtime.starts.keeping import has_tables, keep_tables
from tidemill.runtime.starts.naming import asked_of, check_name, find_named
from tidemill.runtime.starts.recovery import (
    LATEST,
    Takeover,
    find_lost,
    output_start,
    recover,
    require_stamps,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Starter:
    """Gives manifests that may be driven: of new runs, or of the run that a name stands for."""

    loaded: LoadedConfig
    tell: Tell = untold

    def begin(self, asked: RunRequest, name: str | None, spark: SparkSession | None) -> Manifest:
        """A run of a pipeline. Without a run of that name one is planned, and then has the name."""
        found = self._named(name, asked.pipeline, asked_of(asked))
        if found is not None:
            return found
        self.tell(Activity(ActivityKind.PLANNING))
        plan = make_plan(self.loaded, asked, datetime.now(UTC), spark, self.tell)
        return self.prepare(plan, name)

    def prepare(self, plan: RunPlan, name: str | None = None) -> Manifest:
        """Fix a plan as a new run, if its place is free."""
        if name is not None:
            check_name(name)
        made = pipeline_manifest(self.loaded, plan, new_run_id(plan.created), local_cores())
        made = made.begun_as(name, asked_of(plan.request))
        told = plan.request.state
        carried = None if told is None else FromFile(self.loaded, StateFile(Path(told)))
        made = made if carried is None else carried.begun(made, plan.facts.natives)
        with one_start_at_a_time(self.loaded.home):
            if plan.request.yield_to is not None:
                require_live(self.loaded.home, plan.request.yield_to)
            run = self._sink_run(made, open_catalog(self.loaded))
            require_place(run, plan.request)
            if carried is not None:
                if not plan.request.append:
                    require_not_beyond(run, carried.file.point())
                carried.write(made)
            write_run(self.loaded, made)
        return made

    def complete(self, manifest: Manifest, folder: RunFolder) -> None:
        """Do what is left to do for a run that was written down, before it is driven."""
        complete_run(self.loaded, manifest, folder)

    def release(self, manifest: Manifest) -> None:
        """Let go of what a run that will not be driven has pinned."""
        release(open_catalog(self.loaded), manifest)

    def recover(
        self,
        plan: Callable[[datetime], RunPlan],
        lost: str,
        name: str | None,
        *,
        changed_code: bool,
    ) -> Manifest:
        """A run that goes on for a lost one; ``plan`` tells how, from a time of output on."""
        home, catalog = self.loaded.home, open_catalog(self.loaded)
        registry = open_registry(home)
        if name is not None:
            check_name(name)
        first = plan(datetime.now(UTC))
        draft = pipeline_manifest(self.loaded, first, new_run_id(first.created), local_cores())
        places = open_places(self._sink_run(draft, catalog))
        require_stamps(draft, places)
        with contextlib.suppress(RunError):
            lost = registry.get(lost).run  # it may be told by its name
        backfills = {found.run for found in registry.runs() if found.mode == "backfill"}
        found = find_lost(places, draft, lost, backfills).run
        if lost == LATEST and not changed_code:
            _require_lost(RunFolder.of(home, found))
        lost = found
        takeover = Takeover(home, registry, draft.pipeline, lost, changed_code)
        with one_start_at_a_time(home), takeover.held():
            require_only_live_run(draft, home, lost)
            last = find_lost(places, draft, lost)  # nobody adds to it any more
            final = plan(output_start(last, first))
            made = recover(pipeline_manifest(self.loaded, final, draft.run, local_cores()), last)
            made = made.begun_as(name, asked_of(final.request))
            takeover.require_same_code(made, last.end.code)
            made = takeover.inherit(made, catalog)
            write_run(self.loaded, made, lost)
            takeover.give_up(made.run)
        return made

    def _sink_run(self, manifest: Manifest, catalog: Catalog) -> SinkRun:
        folder = RunFolder.of(self.loaded.home, manifest.run).path
        return SinkRun(self.loaded, catalog, manifest, folder)

    def follow(self, streams: Sequence[str], trigger: timedelta, name: str | None) -> Manifest:
        """A run that follows logs into their archives."""
        found = self._named(name, archive_run_name(streams), archive_run_asked(trigger))
        return found or self._run_archive(streams, trigger, name, None)

    def _run_archive(
        self, streams: Sequence[str], trigger: timedelta, name: str | None, after: str | None
    ) -> Manifest:
        """A new run that follows logs; it takes over the name of the run it comes ``after``."""
        now = datetime.now(UTC)
        made = archive_run_manifest(self.loaded, streams, now, new_run_id(now), trigger)
        made = made.begun_as(name, archive_run_asked(trigger))
        write_run(self.loaded, made, after)
        return made

    def outgrow(self, manifest: Manifest) -> Manifest:
        """A new run that goes on, under the same name, where one has met new fields."""
        live = next(pin.live for pin in manifest.sources.values() if pin.live is not None)
        trigger = timedelta(microseconds=live.trigger)
        return self._run_archive(
            list(manifest.sources), trigger, manifest.identity.name, manifest.run
        )

    def _named(self, name: str | None, pipeline: str, asked: dict[str, Any]) -> Manifest | None:
        found = None if name is None else find_named(self.loaded.home, name, pipeline, asked)
        return found if found and is_begun(self.loaded, found) else None


@dataclass(frozen=True)
class FromFile:
    """The beginning of a run whose state and place in the log are in a file."""

    loaded: LoadedConfig
    file: StateFile

    def begun(self, manifest: Manifest, natives: tuple[str, ...]) -> Manifest:
        """The manifest with the file's beginning; refuses a state that does not fit."""
        point = self.file.point()
        require_fit(point, manifest, natives, str(self.file.path))
        made = begin_with(manifest, point)
        secure_log(self.loaded, made)
        return made

    def write(self, manifest: Manifest) -> None:
        """Put the state into the run's folder; the manifest is written after it."""
        folder = RunFolder.of(self.loaded.home, manifest.run)
        try:
            write_carried(folder, manifest, self.file.point(), self.file.rows)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise


def _require_lost(folder: RunFolder) -> None:
    """Who names no run means one whose checkpoint is gone, not one that can simply go on."""
    run = folder.path.name
    if has_log(folder.checkpoint):
        raise PlanError(
            f"the latest run {run} has its folder and its checkpoint: it is not lost",
            fix=f"'tidemill resume {run}' goes on exactly where it was; if that is refused, "
            f"'--recover-from-archive {run}' rebuilds it from the archive",
            run=run,
        )


def write_run(loaded: LoadedConfig, manifest: Manifest, follows: str | None = None) -> None:
    """Fix a run; what cannot be finished is taken back.

    The manifest comes first: a run that the registry knows can always be gone on with. The registry
    comes before the tags, so that `cancel` finds them. ``follows``: whose name it takes over.
    """
    folder = RunFolder.of(loaded.home, manifest.run)
    catalog = open_catalog(loaded)
    try:
        folder.write_manifest(manifest)
        registry = open_registry(loaded.home)
        own = manifest.identity
        name = (
            None if own.origin.upgrades else own.name
        )  # it takes the name over when it takes over
        registry.add(manifest.run, manifest.pipeline, own.mode, name, follows)
        _pin(manifest, folder, catalog)
    except BaseException as error:
        _take_back(loaded, manifest, folder, catalog)
        if not isinstance(error, OSError):
            raise
        raise not_written(error, folder.path) from None


def complete_run(loaded: LoadedConfig, manifest: Manifest, folder: RunFolder) -> None:
    """Do what is left of :func:`write_run`, if whoever wrote the run down died meanwhile."""
    if not is_kept(manifest, folder.table) or not has_tables(manifest, folder):
        _pin(manifest, folder, open_catalog(loaded))


def is_begun(loaded: LoadedConfig, manifest: Manifest) -> bool:
    """Whether a run that the registry knows can go on; if not, it is taken back.

    Only one that was never driven, and whose snapshot expired before it was tagged, cannot.
    """
    if open_registry(loaded.home).get(manifest.run).state is RunState.PLANNED:
        folder = RunFolder.of(loaded.home, manifest.run)
        try:
            complete_run(loaded, manifest, folder)
        except SourceError:
            _take_back(loaded, manifest, folder, open_catalog(loaded))
            return False
    return True


def _pin(manifest: Manifest, folder: RunFolder, catalog: Catalog) -> None:
    """Hold the archives, keep their metadata beside the manifest, and the rows of tables.

    Twice is as good as once.
    """
    for name, pin in manifest.sources.items():
        if pin.archive is not None:
            archive_of(pin.archive).hold(pin.archive, catalog, manifest.run)
        keep_metadata(pin, catalog, folder.table(name))
    keep_tables(manifest, folder, catalog)


def release(catalog: Catalog, manifest: Manifest) -> None:
    """Let go of the pinned archives."""
    for pin in manifest.sources.values():
        if pin.archive is not None:
            archive_of(pin.archive).release(pin.archive, catalog, manifest.run)


def _take_back(
    loaded: LoadedConfig, manifest: Manifest, folder: RunFolder, catalog: Catalog
) -> None:
    """Remove what is there of a run that could not be written; what fails here stays."""
    with contextlib.suppress(Exception):
        release(catalog, manifest)
    with contextlib.suppress(Exception):
        open_registry(loaded.home).remove(manifest.run)
    shutil.rmtree(folder.path, ignore_errors=True)

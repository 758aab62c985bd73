"""Carry out a manifest: session, tables, frames, query. What `backfill` and `resume` share."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidemill.config.loader import LoadedConfig
from tidemill.config.sparksettings import meaning
from tidemill.connectors.archives.opening import open_reader
from tidemill.connectors.sinks.contract import Sink, SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.table import open_sides
from tidemill.errors import RunError, TidemillError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.requests import Goal
from tidemill.reading.slicing import Slicing
from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.driver_log import DriverLog
from tidemill.runfolder.folder import SPARK_LOG, RunFolder
from tidemill.runfolder.lease import hold_lease, is_watched, record_jvm
from tidemill.runfolder.offset_log import committed_batches, has_log
from tidemill.runfolder.phases import read_phases
from tidemill.runfolder.retrying import clear_retry
from tidemill.runtime.code.sameness import require_same
from tidemill.runtime.driving.archive_commits import ArchiveCommitter
from tidemill.runtime.driving.callbacks import Callbacks
from tidemill.runtime.driving.childwatch import ChildWatch
from tidemill.runtime.driving.cohortwatch import CohortWatch
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.driving.deadlimit import DeadLimit
from tidemill.runtime.driving.driver import Driver
from tidemill.runtime.driving.frames import Work, build_frame
from tidemill.runtime.driving.growth import GrowthWatch
from tidemill.runtime.driving.logwatch import LogWatch
from tidemill.runtime.driving.measuring import task_meter
from tidemill.runtime.driving.readwatch import ReadWatch
from tidemill.runtime.driving.seam import SeamWatch
from tidemill.runtime.driving.supervisor import STOPPING, on_signals
from tidemill.runtime.driving.tablewatch import TableWatch
from tidemill.runtime.driving.yielding import YieldWatch
from tidemill.runtime.registry import OVER, BatchRecord, Registry, RunState
from tidemill.runtime.reports.activity import Activity, ActivityKind, Tell, untold
from tidemill.runtime.reports.judging import HourWatch, judge_end
from tidemill.runtime.spark.session import (
    build_session,
    end_jvm,
    is_done_within,
    run_settings,
    stop_session,
)
from tidemill.runtime.spark.settings import apply_settings, share_shuffles
from tidemill.runtime.starts.handover import Handover, give_up_successors
from tidemill.runtime.starts.standing import require_checkpoint
from tidemill.runtime.starts.starting import release
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.pipeline import Pipeline
    from tidemill.planning.manifest import Manifest


_RELEASE = 30.0
"""Seconds for the tags of a run that is over to be removed; 'tidemill forget' removes them, too."""
_STILL = 10.0
"""Seconds without any work after which a slice waits for what is away, if all runs on one machine.
On a cluster nobody sees whether an executor computes, so there a task may take longer."""
_COURTESY = 10.0
"""Seconds for the judgement of a live run that is stopped; its next driver judges it again."""


def execute(
    loaded: LoadedConfig,
    folder: RunFolder,
    registry: Registry,
    on_batch: Callable[[BatchRecord], None],
    *,
    spark: SparkSession | None = None,
    goal: Goal | None = None,
    tell: Tell = untold,
) -> RunState:
    """Drive the run in this folder until it ends or stops. Safe to call again after any crash."""
    manifest = folder.read_manifest()
    with hold_lease(folder.path, manifest.run, lambda: forget_orders(folder)) as lease:
        give_up_successors(loaded, registry, manifest)
        handover = Handover(loaded, registry, manifest)
        handover.require_open()
        if read_control(folder.path).upgrading:  # that upgrade is over: this run goes on itself
            update_control(folder.path, upgrading=False)
        registry.set_state(manifest.run, RunState.RUNNING)
        began, log = time.monotonic(), DriverLog(folder.path)
        log.write(f"driver {os.getpid()} drives the run {manifest.run} of {manifest.pipeline}")
        try:
            work = Work(loaded, manifest, folder)
            watched = HourWatch(loaded, folder, registry, _logged(log, on_batch))
            tell(Activity(ActivityKind.STARTING))
            state = _drive(
                work, registry, watched, spark, goal or Goal(), tell=tell, handover=handover
            )
            if state is RunState.FINISHED:
                judge_end(loaded, folder, registry, manifest)
            elif not manifest.times.ends:  # a stop does not wait for a catalog, nor fail by it
                is_done_within(_COURTESY, partial(_judge_stopped, work, registry, watched))
        except BaseException as error:
            lease.require()  # a driver that slept while another one went on changes nothing
            failure = error
            if isinstance(error, OSError):
                failure = RunError(
                    f"the run cannot go on: {error.strerror or error}",
                    where=str(error.filename or ""),
                    fix="free space or give write permission, then "
                    f"'tidemill resume {manifest.run}'",
                )
            text = failure.text() if isinstance(failure, TidemillError) else repr(failure)
            log.write(loaded.redact(f"failed: {text}\n{traceback.format_exc()}"))
            with suppress(RunError):  # a full disk must not hide why the run failed
                spent = time.monotonic() - began
                registry.set_state(
                    manifest.run, RunState.FAILED, loaded.redact(text), seconds=spent
                )
            if failure is error:
                raise
            raise failure from error
        lease.require()
        if state in OVER and not is_done_within(_RELEASE, partial(_release, loaded, manifest, log)):
            log.write("the catalog does not answer: the tags of pinned snapshots stay")
        if state is RunState.STOPPED:
            update_control(folder.path, stopping=False)  # it has: who goes on was not told to
        log.write(f"{state} after {time.monotonic() - began:.1f} s")
        registry.set_state(manifest.run, state, seconds=time.monotonic() - began)
        return state


def _judge_stopped(work: Work, registry: Registry, watched: HourWatch) -> None:
    watched.end()
    judge_end(work.loaded, work.folder, registry, work.manifest)


def _release(loaded: LoadedConfig, manifest: Manifest, log: DriverLog) -> None:
    """Let go of the pins of a run that is over. A catalog that is away must not undo its end."""
    try:
        release(open_catalog(loaded), manifest)
    except Exception as error:
        log.write(loaded.redact(f"the tags of pinned snapshots stay: {error}"))


def _is_fresh(
    work: Work, stamps: Mapping[str, object], sinks: Mapping[str, Sink], registry: Registry
) -> bool:
    """Whether the run was begun and has committed nothing: no place can have a row of it."""
    checkpoint = work.folder.checkpoint
    return (
        has_log(checkpoint)
        and not stamps
        and all(sink.keeps_stamps for sink in sinks.values())
        and registry.newest_batch(work.manifest.run) is None
        and not committed_batches(checkpoint)
    )


def _logged(
    log: DriverLog, on_batch: Callable[[BatchRecord], None]
) -> Callable[[BatchRecord], None]:
    """Log every batch, then hand it on."""

    def handle(batch: BatchRecord) -> None:
        log.write(
            f"batch {batch.batch}: on time {batch.on_time:,}, late {batch.late:,}, dead "
            f"{batch.dead:,}, out {batch.out:,}, {batch.seconds:.2f} s, up to "
            f"{show_instant(from_micros(batch.frontier))}"
        )
        on_batch(batch)

    return handle


def forget_orders(folder: RunFolder) -> None:
    """Clear the orders that were left for an earlier driver.

    The orders to pause and to stop a supervised run stay in force for its next driver.
    """
    kept: dict[str, bool] = {} if is_watched(folder.path) else {"stopping": False, "paused": False}
    update_control(folder.path, cancelled=False, grown=False, yielding=None, **kept)
    clear_retry(folder.path)


def _drive(
    work: Work,
    registry: Registry,
    on_batch: Callable[[BatchRecord], None],
    given: SparkSession | None,
    goal: Goal,
    *,
    tell: Tell,
    handover: Handover,
) -> RunState:
    manifest, config = work.manifest, work.loaded.config.spark
    catalog = open_catalog(work.loaded)
    run = SinkRun(work.loaded, catalog, manifest, work.folder.path)
    sinks, sides = open_sinks(run), open_sides(run)
    places = {**{sink.place: sink for sink in sinks.values()}, **sides}
    stamps = require_checkpoint(manifest, work.folder, places, registry)
    if not read_phases(work.folder.path, manifest).is_live:
        for pin in manifest.sources.values():
            open_reader(pin, catalog)  # what is pinned must still be there
    for sink in sinks.values():
        sink.check()
    spark = given or build_session(
        config,
        manifest.resources.shuffles,
        manifest.run,
        modules=work.loaded.base,
        log=work.folder.path / SPARK_LOG,
        warm=True,
        record=manifest.times.ends,
    )
    record_jvm(work.folder.path, spark.sparkContext._gateway.proc.pid)
    more = run_settings(manifest.resources.shuffles, manifest.resources.keep_batches)
    pinned = meaning(config.conf) if manifest.code.settings is None else manifest.code.settings
    give_back = apply_settings(spark, pinned, more)
    try:
        slicings = {source: Slicing(work.options(source)) for source in manifest.sources}
        archives = {name: slicing.archive for name, slicing in slicings.items()}
        tell(Activity(ActivityKind.CHECKING))
        is_fresh = _is_fresh(work, stamps, sinks, registry)
        found = require_same(work, spark, archives, is_fresh=is_fresh)
        pipeline, facts = found or (None, None)
        if facts is not None and facts.behaviour != manifest.code.behaviour:
            code = replace(manifest.code, behaviour=facts.behaviour)
            manifest = replace(manifest, code=code)
            work = replace(work, manifest=manifest)
            work.folder.begin_again(manifest)
        if facts is not None and facts.shares:
            share_shuffles(spark)
        for place, sink in places.items():
            sink.prepare(stamps.get(place))
        targets = {name: sink.destination() for name, sink in sinks.items()}
        work = replace(work, meter=task_meter(spark))
        frame = build_frame(work, spark, archives, targets, pipeline)
        kind = Committer if manifest.code.is_there else ArchiveCommitter
        committer = kind(manifest, work.folder, sinks, sides, slicings)
        committer.before_commit = handover.before_commit
        _tell_committer(committer, work, registry, pipeline)
        driver = _driver(work, registry, committer, on_batch, goal)
        driver.reading = ReadWatch(work.folder, manifest, slicings, tell)
        if spark.sparkContext.master.startswith("local"):  # the watchdog sees every process
            driver.patience.still = min(driver.patience.still, _STILL)
        if given is None:
            driver.end_jvm = partial(end_jvm, spark)
        # Only the main thread can handle signals; a run in another one is stopped by its caller.
        is_main = threading.current_thread() is threading.main_thread()
        with on_signals(lambda *_: driver.stop(), *(STOPPING if is_main else ())):
            return driver.run(frame)
    finally:
        if given is None:
            stop_session(spark)
        else:
            give_back()


def _tell_committer(
    committer: Committer, work: Work, registry: Registry, pipeline: Pipeline | None
) -> None:
    """What goes along with its commits: figures, the user's callbacks, the limit of dead rows."""
    committer.measure(work.meter)
    if pipeline is not None:
        committer.callbacks = Callbacks(pipeline.callbacks, work.folder)
    section = work.loaded.config.pipelines.get(work.manifest.pipeline)
    if section is not None:
        committer.limit = DeadLimit(registry, work.manifest.run, section.most_dead)


def _driver(
    work: Work,
    registry: Registry,
    committer: Committer,
    on_batch: Callable[[BatchRecord], None],
    goal: Goal,
) -> Driver:
    """The driver, with whatever of its run has to be watched beside the batches."""
    manifest, is_live = work.manifest, not work.manifest.times.ends
    driver = Driver(
        manifest,
        work.folder,
        registry,
        committer,
        on_batch,
        goal,
        seam=SeamWatch(work.loaded, work.folder, manifest) if is_live else None,
        logs=LogWatch(work.loaded, work.folder, manifest) if is_live else None,
        growth=None if manifest.code.is_there else GrowthWatch(work.loaded, manifest),
    )
    driver.tables = TableWatch(work) if manifest.tables else None
    if manifest.identity.origin.parent is not None:
        driver.child = ChildWatch(work.folder, manifest, registry)
    elif is_live and manifest.code.is_there:
        driver.cohorts = CohortWatch(work, registry, lambda: driver.is_leaving)
    if manifest.times.yields_to is not None:
        driver.yielding = YieldWatch(work.loaded.home, work.folder, registry, manifest)
    driver.base = work.loaded.base
    return driver

"""Carry out a manifest: session, tables, frames, query. What `backfill` and `resume` share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.config.sparksettings import meaning
from tidemill.connectors.archives.opening import archive_of, open_reader
from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.table import open_sides
from tidemill.errors import RunError, TidemillError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.requests import Goal
from tidemill.reading.slicing import Slicing
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import SPARK_LOG
from tidemill.runfolder.lease import hold_lease, is_watched, record_jvm
from tidemill.runfolder.phases import read_phases
from tidemill.runtime.code.sameness import require_same
from tidemill.runtime.driving.archive_commits import ArchiveCommitter
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.driving.driver import Driver
from tidemill.runtime.driving.frames import Work, build_frame
from tidemill.runtime.driving.growth import GrowthWatch
from tidemill.runtime.driving.logwatch import LogWatch
from tidemill.runtime.driving.seam import SeamWatch
from tidemill.runtime.driving.signals import STOPPING, on_signals
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.spark.session import build_session, end_jvm, run_settings, stop_session
from tidemill.runtime.spark.settings import apply_settings, share_shuffles
from tidemill.runtime.starts.standing import require_checkpoint

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.folder import RunFolder


def execute(
    loaded: LoadedConfig,
    folder: RunFolder,
    registry: Registry,
    on_batch: Callable[[BatchRecord], None],
    *,
    spark: SparkSession | None = None,
    goal: Goal | None = None,
) -> RunState:
    """Drive the run in this folder until it ends or stops. Safe to call again after any crash."""
    manifest = folder.read_manifest()
    with hold_lease(folder.path, manifest.run, lambda: forget_orders(folder, manifest)) as lease:
        registry.set_state(manifest.run, RunState.RUNNING)
        began = time.monotonic()
        try:
            work = Work(loaded, manifest, folder)
            state = _drive(work, registry, on_batch, spark, goal or Goal())
        except BaseException as error:
            lease.require()  # a driver that slept while another one went on changes nothing
            failure = _in_our_words(error, manifest.run)
            text = failure.text() if isinstance(failure, TidemillError) else repr(failure)
            with suppress(RunError):  # a full disk must not hide why the run failed
                registry.set_state(manifest.run, RunState.FAILED, loaded.redact(text))
            if failure is error:
                raise
            raise failure from error
        finally:
            with suppress(RunError):
                registry.add_seconds(manifest.run, time.monotonic() - began)
        lease.require()
        if state in (RunState.FINISHED, RunState.CANCELLED):
            release(open_catalog(loaded), manifest)
        if state is RunState.STOPPED:
            update_control(folder.path, stopping=False)  # it has: who goes on was not told to
        registry.set_state(manifest.run, state)
        return state


def forget_orders(folder: RunFolder, manifest: Manifest) -> None:
    """Clear the orders that were left for an earlier driver.

    The orders to pause and to stop a supervised run stay in force for its next driver.
    """
    changes: dict[str, Any] = {"cancelled": False, "grown": False}
    if not is_watched(folder.path):
        changes |= {"stopping": False, "paused": False}
    if manifest.steps:
        changes["sources"] = {}  # earlier versions released steps here
    update_control(folder.path, **changes)


def _in_our_words(error: BaseException, run: str) -> BaseException:
    if not isinstance(error, OSError):
        return error
    return RunError(
        f"the run cannot go on: {error.strerror or error}",
        where=str(error.filename or ""),
        fix=f"free space or give write permission, then 'tidemill resume {run}'",
    )


def release(catalog: Catalog, manifest: Manifest) -> None:
    """Let go of the pinned archives."""
    for pin in manifest.sources.values():
        if pin.archive is not None:
            archive_of(pin.archive).release(pin.archive, catalog, manifest.run)


def _drive(
    work: Work,
    registry: Registry,
    on_batch: Callable[[BatchRecord], None],
    given: SparkSession | None,
    goal: Goal,
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
        manifest.shuffles,
        manifest.run,
        modules=work.loaded.base,
        log=work.folder.path / SPARK_LOG,
        warm=True,
        record=manifest.ends,
    )
    record_jvm(work.folder.path, spark.sparkContext._gateway.proc.pid)
    more = run_settings(manifest.shuffles, manifest.keep_batches)
    pinned = meaning(config.conf) if manifest.settings is None else manifest.settings
    give_back = apply_settings(spark, pinned, more)
    try:
        slicings = {source: Slicing(work.options(source)) for source in manifest.sources}
        archives = {name: slicing.archive for name, slicing in slicings.items()}
        pipeline, facts = require_same(work, spark, archives) or (None, None)
        if facts is not None and facts.shares:
            share_shuffles(spark)
        for place, sink in places.items():
            sink.prepare(stamps.get(place))
        targets = {name: sink.destination() for name, sink in sinks.items()}
        frame = build_frame(work, spark, archives, targets, pipeline)
        kind = Committer if manifest.code else ArchiveCommitter
        committer = kind(manifest, work.folder, sinks, sides, slicings)
        seam = None if manifest.ends else SeamWatch(work.loaded, work.folder, manifest)
        logs = None if manifest.ends else LogWatch(work.loaded, work.folder, manifest)
        growth = None if manifest.code else GrowthWatch(work.loaded, manifest)
        ending = None if given is not None else partial(end_jvm, spark)
        driver = Driver(
            manifest, work.folder, registry, committer, on_batch, goal, seam, logs, growth, ending
        )
        with _stop_on_signal(driver):
            return driver.run(frame)
    finally:
        if given is None:
            stop_session(spark)
        else:
            give_back()


@contextmanager
def _stop_on_signal(driver: Driver) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal (SIGHUP) stop cleanly, after the running slice."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with on_signals(lambda *_: driver.stop(), *STOPPING):
        yield

"""Carry out a manifest: session, tables, frames, query. What `backfill` and `resume` share."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tidemill.archive.catalog import load_table, open_catalog, unpin_snapshot
from tidemill.errors import PlanError, RunError, SourceError, TidemillError, nearest
from tidemill.folds.building import building
from tidemill.folds.packing import PACK_TIME, PACKED, Pack
from tidemill.folds.runner import Delivery, Place
from tidemill.folds.watermark import Clock
from tidemill.planning.requests import Goal
from tidemill.runtime.analyst import call_pipeline
from tidemill.runtime.code import load_pipeline
from tidemill.runtime.committer import Committer
from tidemill.runtime.driver import Driver
from tidemill.runtime.feeds import feed_root
from tidemill.runtime.lease import hold_lease, record_jvm
from tidemill.runtime.logs import client_settings
from tidemill.runtime.logwatch import LogWatch
from tidemill.runtime.registry import BatchRecord, Registry, RunState
from tidemill.runtime.seam import SeamWatch
from tidemill.runtime.session import build_session, run_settings
from tidemill.runtime.topics import topic_targets
from tidemill.sinks.tables import ensure_table
from tidemill.sinks.writing import OUTPUT, RESULT_DDL, BatchWriter, Target
from tidemill.sources.control import update_control
from tidemill.sources.legs import read_course
from tidemill.sources.opening import open_reader
from tidemill.sources.slicing import Slicing
from tidemill.sources.verdict import SIDE_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest, SinkPin
    from tidemill.runtime.run import RunFolder
    from tidemill.sinks.base import Destination

_LOG = logging.getLogger(__name__)


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
    with hold_lease(folder.path, manifest.run):
        update_control(folder.path, paused=False, cancelled=False, stopping=False)
        registry.set_state(manifest.run, RunState.RUNNING)
        began = time.monotonic()
        try:
            work = _Work(loaded, manifest, folder)
            state = _drive(work, registry, on_batch, spark, goal or Goal())
        except BaseException as error:
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
        if state in (RunState.FINISHED, RunState.CANCELLED):
            release(open_catalog(loaded), manifest)
        registry.set_state(manifest.run, state)
        return state


def _in_our_words(error: BaseException, run: str) -> BaseException:
    if not isinstance(error, OSError):
        return error
    return RunError(
        f"the run cannot go on: {error.strerror or error}",
        where=str(error.filename or ""),
        fix=f"free space or give write permission, then 'tidemill resume {run}'",
    )


def release(catalog: Catalog, manifest: Manifest) -> None:
    """Let go of the pinned snapshots; a table that is gone needs no letting go."""
    for pin in manifest.sources.values():
        if pin.kind == "iceberg" and pin.snapshot is not None:
            try:
                unpin_snapshot(load_table(catalog, pin.location, ""), manifest.run)
            except SourceError as error:
                _LOG.info("nothing to unpin: %s", error)


@dataclass(frozen=True)
class _Work:
    """What carrying out a manifest needs at every step."""

    loaded: LoadedConfig
    manifest: Manifest
    folder: RunFolder

    def options(self, source: str) -> dict[str, str]:
        """The data source's options; the same ones make the driver's own readers."""
        catalog = self.loaded.config.catalog.properties(self.loaded.base)
        stream = self.manifest.sources[source].stream
        client = client_settings(self.loaded, stream)
        root = feed_root(self.loaded, stream)
        return {
            **({} if root is None else {"root": root}),
            "client": json.dumps(client),
            "run": str(self.folder.path),
            "source": source,
            "side": self.folder.side,
            "catalog": json.dumps(catalog),
        }

    def lift(self, spark: SparkSession, source: str, columns: list[str], pack: Pack) -> DataFrame:
        """A source's rows as packs for the one fold that reads it."""
        from tidemill.sources.lifting import Lifting
        from tidemill.sources.marks import lifted_stream

        pin = self.manifest.sources[source]
        lifting = Lifting(pack, tuple(columns), PACKED, pin.event_time, PACK_TIME)
        return lifted_stream(spark, pin, lifting, self.options(source), self.manifest.spare)

    def places(self) -> dict[str, Place]:
        """Where each fold finds its batch and its state."""
        manifest = self.manifest
        lateness = {source: pin.lateness for source, pin in manifest.sources.items()}
        return {
            name: Place(
                self.folder.checkpoint.absolute().as_uri(),
                self.folder.state,
                manifest.buckets,
                Clock(lateness, pin.behind, pin.native, manifest.spare),
                manifest.run,
                pin.settle,
                pin.reads,
                pin.gives,
            )
            for name, pin in manifest.folds.items()
        }


def _drive(
    work: _Work,
    registry: Registry,
    on_batch: Callable[[BatchRecord], None],
    given: SparkSession | None,
    goal: Goal,
) -> RunState:
    manifest, config = work.manifest, work.loaded.config.spark
    catalog = open_catalog(work.loaded)
    if not read_course(work.folder.path, manifest).is_live:
        for pin in manifest.sources.values():
            open_reader(pin, catalog)  # what is pinned must still be there
    topics = topic_targets(work.loaded, manifest)
    spark = given or build_session(
        config,
        manifest.shuffles,
        manifest.run,
        modules=work.loaded.base,
        log=work.folder.path / "spark.log",
        warm=True,
    )
    record_jvm(work.folder.path, spark.sparkContext._gateway.proc.pid)
    try:
        slicings = {source: Slicing(work.options(source)) for source in manifest.sources}
        targets: dict[str, Destination] = {**topics, **prepare_tables(catalog, manifest)}
        archives = {name: slicing.archive for name, slicing in slicings.items()}
        frame = _build_frame(work, spark, archives, targets)
        committer = Committer(manifest, work.folder, catalog, targets, slicings)
        seam = None if manifest.ends else SeamWatch(work.loaded, work.folder, manifest)
        logs = None if manifest.ends else LogWatch(work.loaded, work.folder, manifest)
        driver = Driver(manifest, work.folder, registry, committer, on_batch, goal, seam, logs)
        with _stop_on_signal(driver):
            return driver.run(frame)
    finally:
        if given is None:
            spark.stop()


def prepare_tables(catalog: Catalog, manifest: Manifest) -> dict[str, Target]:
    """Make the output, late and dead tables if they are missing."""
    targets = {}
    for name, sink in manifest.sinks.items():
        if sink.topic is not None:
            continue
        table = ensure_table(
            catalog,
            sink.table,
            _arrow_schema(sink),
            sink.time,
            sink.partition_by,
            region=sink.region,
            grows=not manifest.code,
        )
        targets[name] = Target.of(table, sink.time, manifest.output, sink.order)
    for name in filter(None, (manifest.late_table, manifest.dead_table)):
        ensure_table(catalog, name, SIDE_SCHEMA, None, "none")
    return targets


def _arrow_schema(sink: SinkPin) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from tidemill.sources.base import spark_schema

    shape = StructType.fromJson(json.loads(sink.schema))
    try:
        return spark_schema(to_arrow_schema(shape, timezone="UTC"))
    except Exception as error:
        raise PlanError(
            f"an output column has a type no table can hold: {error}",
            where=f"table {sink.table}",
            fix="cast it in the pipeline",
        ) from None


def _build_frame(
    work: _Work,
    spark: SparkSession,
    archives: dict[str, pa.Schema],
    targets: dict[str, Destination],
) -> DataFrame:
    """The whole pipeline as one streaming DataFrame; several outputs are tagged and united."""
    from tidemill.sources.datasource import TidemillSource
    from tidemill.sources.marks import marked_stream

    manifest = work.manifest
    for key, value in run_settings(manifest.shuffles, manifest.keep_batches).items():
        spark.conf.set(key, value)
    spark.dataSource.register(TidemillSource)
    frames = {
        source: marked_stream(spark, pin, archives[source], work.options(source), manifest.spare)
        for source, pin in manifest.sources.items()
    }
    if not manifest.code:
        return unite(frames)
    deliver = Delivery(BatchWriter(targets), RESULT_DDL)
    with building(work.places(), partial(work.lift, spark), deliver):
        outputs = call_pipeline(load_pipeline(work.loaded, manifest.pipeline), frames)
    for name in manifest.sinks:
        if name not in outputs:
            raise RunError(f"the pipeline no longer gives {name!r}", fix=nearest(name, outputs))
    return unite(outputs)


def unite(outputs: dict[str, DataFrame]) -> DataFrame:
    """One frame for one query: a single output as it is, several as tagged structs."""
    from pyspark.sql import functions as F

    if len(outputs) == 1:
        return next(iter(outputs.values()))
    types = {name: frame.schema for name, frame in outputs.items()}
    parts = [
        frame.select(
            F.lit(name).alias(OUTPUT),
            *(
                (F.struct("*") if other == name else F.lit(None).cast(kind)).alias(other)
                for other, kind in types.items()
            ),
        )
        for name, frame in outputs.items()
    ]
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part)
    return united


@contextmanager
def _stop_on_signal(driver: Driver) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop cleanly: the running slice is finished and committed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in kept:
        signal.signal(number, lambda *_: driver.stop())
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)

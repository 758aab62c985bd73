"""The query of a run as one streaming DataFrame: sources, the pipeline's code, outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.logs.contract import live_home
from tidemill.connectors.sinks.contract import RESULT, Destination
from tidemill.connectors.sinks.writing import OUTPUT, RESULT_DDL, BatchWriter
from tidemill.errors import RunError, nearest
from tidemill.folds.building import building
from tidemill.folds.packing import PACK_TIME, PACKED, Pack
from tidemill.folds.runner import Delivery, FailedPlace, Place
from tidemill.folds.watermark import FoldWatermark
from tidemill.iceberg.catalog import NAME
from tidemill.instances import Instances
from tidemill.pipeline import Pipeline
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.manifest import Manifest
from tidemill.planning.metrics.gathering import TaskMeter
from tidemill.reading.marks import marked_stream, transformed_stream
from tidemill.reading.options import SourceOptions
from tidemill.reading.reference import table_frame
from tidemill.reading.transform import ReaderTransform
from tidemill.rows.columns import MARK, stream_schema
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.code.analyst import call_pipeline
from tidemill.runtime.instances.opening import bound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Work:
    """What carrying out a manifest needs at every step."""

    loaded: LoadedConfig
    manifest: Manifest
    folder: RunFolder
    meter: TaskMeter | None = None  # with which tasks tell what they did

    def options(self, source: str) -> SourceOptions:
        """The data source's options; the same ones make the driver's own readers."""
        pin, loaded = self.manifest.sources[source], self.loaded
        home = None if pin.live is None else live_home(loaded, pin.stream)
        return SourceOptions(
            run=self.folder.path,
            source=source,
            catalog={
                NAME: loaded.config.catalog.name,
                **loaded.config.catalog.properties(loaded.base),
            },
            log={} if home is None else home.settings(loaded, pin.stream),
        )

    def table(self, name: str) -> tuple[pa.Schema, int]:
        """The columns of a reference table, and about how many rows it has."""
        versions = DecidedVersions(self.folder.path, name)
        newest = versions.newest()
        return versions.rows(newest).schema, newest.pin.rows

    def instances(self, run: str | None = None) -> Instances | None:
        """What the code gets to pair its rows; without the URI of a folder only to be analysed."""
        pin = self.manifest.instances
        if pin is None:
            return None
        versions = DecidedVersions(self.folder.path, pin.argument)
        return bound(pin, versions.rows(versions.newest()).schema, run)

    def read_packed(
        self, spark: SparkSession, source: str, columns: list[str], pack: Pack
    ) -> DataFrame:
        """A source's rows as packs for the one fold that reads it."""
        pin = self.manifest.sources[source]
        transform = ReaderTransform(pack, tuple(columns), PACKED, pin.times.event_time, PACK_TIME)
        return transformed_stream(
            spark, pin, transform, self.options(source), self.manifest.code.spare
        )

    def written(
        self, spark: SparkSession, source: str, archive: pa.Schema, target: Destination
    ) -> DataFrame:
        """A source whose readers write their rows into its sink: what they tell of it."""
        pin = self.manifest.sources[source]
        columns = tuple(name for name in stream_schema(pin, archive).names if name != MARK)
        transform = ReaderTransform(
            BatchWriter({source: target}), columns, RESULT, pin.times.event_time, PACK_TIME
        )
        told = transformed_stream(
            spark, pin, transform, self.options(source), self.manifest.code.spare
        )
        return told.drop(PACK_TIME)

    def places(self) -> dict[str, Place]:
        """Where each fold finds its batch and its state."""
        manifest = self.manifest
        lateness = {source: pin.times.lateness for source, pin in manifest.sources.items()}
        return {
            name: Place(
                self.folder.checkpoint.absolute().as_uri(),
                self.folder.state,
                manifest.resources.buckets,
                FoldWatermark(lateness, pin.behind, pin.native, manifest.code.spare),
                manifest.run,
                pin.reshuffle,
                pin.reads,
                pin.gives,
                None if manifest.identity.origin.carried is None else self.folder.carried,
                self._failed_place(pin) if pin.catches else None,
                self.meter,
                None if manifest.times.ends else self.folder.files.root,
            )
            for name, pin in manifest.code.folds.items()
        }

    def _failed_place(self, pin: FoldPin) -> FailedPlace:
        """Where a fold leaves failed rows. Of several sources nobody knows which one it was."""
        only = next(iter(self.manifest.sources)) if len(self.manifest.sources) == 1 else None
        return FailedPlace(self.folder.failed, pin.reads or only)


def build_frame(
    work: Work,
    spark: SparkSession,
    archives: dict[str, pa.Schema],
    targets: dict[str, Destination],
    pipeline: Pipeline | None,
) -> DataFrame:
    """The whole pipeline as one streaming DataFrame; several outputs are tagged and united.

    Without a pipeline the readers write their rows as they are.
    """
    from pyspark.sql import DataFrame

    from tidemill.reading.datasource import TidemillSource

    manifest = work.manifest
    spark.dataSource.register(TidemillSource)
    if pipeline is None:
        told = (work.written(spark, name, archives[name], targets[name]) for name in archives)
        return reduce(DataFrame.unionByName, told)
    frames: dict[str, Any] = {
        source: marked_stream(
            spark, pin, archives[source], work.options(source), manifest.code.spare
        )
        for source, pin in manifest.sources.items()
    }
    for name in pipeline.tables:
        schema, rows = work.table(name)
        frames[name] = table_frame(spark, name, schema, rows, work.folder.files.root)
    if pipeline.instances is not None:
        frames[pipeline.instances] = work.instances(work.folder.files.root)
    deliver = Delivery(BatchWriter(targets, work.meter), RESULT_DDL)
    with building(work.places(), partial(work.read_packed, spark), deliver):
        delivers = any(fold.gives for fold in manifest.code.folds.values())
        outputs = call_pipeline(pipeline, frames, delivers=delivers)
    for name in manifest.outputs.sinks:
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
    return reduce(type(parts[0]).unionByName, parts)

"""`archive run`: follow live logs into their archives, as a run like every other.

No code, no verdict: every record becomes a row. It goes on where the archive's last snapshot says
that it ends, whichever run wrote that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.archive.progress import read_progress
from tidemill.config.loader import LoadedConfig
from tidemill.config.pins import SinkPin
from tidemill.config.places import table_key, table_of
from tidemill.connectors.archives.opening import log_schema
from tidemill.connectors.logs.contract import live_home, open_log
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import (
    CodePin,
    HistoryPhase,
    Manifest,
    Outputs,
    Resources,
    RunIdentity,
    RunTimes,
    SourcePin,
    SourceRows,
    SourceTimes,
)
from tidemill.planning.plan import Beginning
from tidemill.planning.resources import parallelism, shuffles
from tidemill.runtime.spark.settings import local_cores
from tidemill.types import BEGINNING, FOREVER, MILLISECOND, micros_of, show_duration, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAME = "archive"
"""What the registry calls these runs, where others have their pipeline's name."""
_WIDEST = 3_600_000_000


def archive_run_name(streams: Sequence[str]) -> str:
    """What the registry calls a run that follows these streams."""
    return f"{NAME}:{'+'.join(dict.fromkeys(streams))}"


def archive_run_asked(trigger: timedelta) -> dict[str, str]:
    """What was asked for beside the streams, as a manifest keeps it."""
    return {"trigger": show_duration(trigger)}


def archive_run_manifest(
    loaded: LoadedConfig, streams: Sequence[str], now: datetime, run: str, trigger: timedelta
) -> Manifest:
    """The manifest of a run that follows these streams."""
    catalog = open_catalog(loaded)
    _require_own_tables(loaded, streams)
    pins = {
        name: _pin(loaded, catalog, name, micros_of(trigger)) for name in dict.fromkeys(streams)
    }
    if not pins:
        raise PlanError("no stream is named", fix="tidemill archive run STREAM")
    frontier = min(pin.phase.seam for pin in pins.values() if pin.phase is not None)
    return Manifest(
        identity=RunIdentity(run, archive_run_name(streams), NAME, to_micros(now)),
        times=RunTimes(
            output=(to_micros(BEGINNING), to_micros(FOREVER)),
            boundaries=(frontier,),
            ends=False,
            misalignment=_WIDEST,
        ),
        sources=pins,
        outputs=Outputs({name: _sink(loaded, pin) for name, pin in pins.items()}),
        resources=Resources(
            parallelism(loaded.config.spark, local_cores()),
            shuffles(loaded.config.spark, local_cores()),
        ),
        code=CodePin(is_there=False),
    )


def _require_own_tables(loaded: LoadedConfig, streams: Sequence[str]) -> None:
    """Each stream of a run follows its log into a table of its own, also if the log is the same."""
    tables: dict[tuple[str, ...], str] = {}
    for name in dict.fromkeys(streams):
        found = loaded.config.streams.get(name)
        table = None if found is None else table_of(found)
        if table is None:
            continue
        other = tables.setdefault(table_key(table), name)
        if other != name:
            raise PlanError(
                f"the streams {other!r} and {name!r} have one archive, the table "
                f"{table!r}: one of them would be lost",
                where=f"stream {name}",
                fix=f"follow one of them, 'tidemill archive run {other}', or give each its own "
                "archive.table in the YAML",
            )


def _pin(loaded: LoadedConfig, catalog: Catalog, name: str, trigger: int) -> SourcePin:
    stream = loaded.config.streams.get(name)
    where = f"stream {name}"
    if stream is None:
        raise ConfigError(
            f"there is no stream {name!r}",
            where=str(loaded.path),
            fix=nearest(name, loaded.config.streams),
        )
    archive = None if stream.archive is None else stream.archive.as_table()
    log = None if stream.live is None else stream.live.archived_log
    if archive is None or log is None:
        raise PlanError(
            "archiving needs live: {type: kafka, …} and archive: {type: iceberg, …}", where=where
        )
    if archive.partition is None or archive.offset is None:
        raise PlanError(
            "an archive that follows a topic keeps every record's position",
            where=where,
            fix="name the columns: archive.partition and archive.offset",
        )
    pin = SourcePin(
        stream=name,
        archive=None,
        times=SourceTimes(stream.event_time, archive.ingest_time, zone=stream.zone),
        rows=SourceRows(partition=archive.partition, offset=archive.offset, for_archive=True),
        live=live_home(loaded, name).live_pin(loaded, name, trigger),
    )
    schema = log_schema(pin)
    for column, key in ((stream.event_time, "event_time"), (archive.region, "archive.region")):
        if column is not None and column not in schema.names:
            raise ConfigError(
                f"{key} names the column {column!r}, which records do not have",
                where=where,
                fix=nearest(column, schema.names),
            )
    pin = replace(pin, rows=replace(pin.rows, columns=tuple(schema.names)))
    return _placed(loaded, catalog, pin, archive.table)


def _placed(loaded: LoadedConfig, catalog: Catalog, pin: SourcePin, name: str) -> SourcePin:
    """The pin with the place where the archive ends, or where the log begins."""
    log = open_log(loaded, pin)
    log.look_now()
    pin = replace(pin, live=replace(log.live, topic=log.identity))
    if catalog.table_exists(name):
        table = catalog.load_table(name)
        reached = read_progress(table.metadata)
        if reached:
            phase = log.seam(reached, 0)  # the archive says itself how far it is, no clock does
            log.require_seam(phase)
            return replace(pin, phase=phase)
        if table.metadata.current_snapshot_id is not None:
            raise PlanError(
                f"{name} has rows that no 'tidemill archive run' wrote: where it ends in "
                "the log is not known",
                where=f"stream {pin.stream}",
                fix="archive into a new table, and move the old rows over",
            )
    frontier = log.first_frontier(Beginning.EARLIEST, 0) // MILLISECOND * MILLISECOND
    positions = log.first_positions(Beginning.EARLIEST, frontier)
    return replace(pin, phase=HistoryPhase(frontier, positions=positions))


def _sink(loaded: LoadedConfig, pin: SourcePin) -> SinkPin:
    from pyspark.sql.pandas.types import from_arrow_schema

    stream = loaded.config.streams[pin.stream]
    assert pin.rows.partition is not None and pin.rows.offset is not None
    schema = from_arrow_schema(log_schema(pin), prefer_timestamp_ntz=True)
    return table_pin(
        table_of(stream) or "",
        json.dumps(schema.jsonValue()),
        pin.times.ingest_time,
        partition_by="hour",
        region=stream.archive.region if stream.archive else None,
        order=(pin.times.ingest_time, pin.rows.partition, pin.rows.offset),
    )

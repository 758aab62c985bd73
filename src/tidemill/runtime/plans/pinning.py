"""From the YAML's streams to pins: which snapshot, which columns, which filters a run reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.config.stream import LiveHome
from tidemill.connectors.archives.contract import Archive
from tidemill.connectors.archives.filter_text import parse_filter
from tidemill.connectors.archives.opening import archive_of
from tidemill.errors import PlanError, nearest
from tidemill.planning.manifest import SourcePin, SourceRows, SourceTimes
from tidemill.rows.columns import INGEST_TIME, OFFSET, PARTITION
from tidemill.types import micros_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.plan import RunRequest


def pin_source(
    loaded: LoadedConfig, catalog: Catalog, source: str, request: RunRequest
) -> SourcePin:
    """Fix what a source reads of history. Columns are narrowed later, when the code is known."""
    pin = describe_source(loaded, source, request)
    archive = loaded.config.streams[pin.stream].archive
    live = loaded.config.streams[pin.stream].live
    where = f"stream {pin.stream}"
    if archive is None:
        raise PlanError(
            "the stream has no archive:, so it has no history to backfill from",
            where=where,
            fix=LiveHome.no_history if live is None else live.no_history,
        )
    assert isinstance(archive, Archive)
    return replace(pin, archive=archive.pin(catalog, loaded.base, where))


def describe_source(loaded: LoadedConfig, source: str, request: RunRequest) -> SourcePin:
    """What the YAML says of a source, wherever its rows are."""
    settings = loaded.config.pipelines[request.pipeline].source(source)
    stream_name = settings.stream or source
    stream = loaded.config.streams[stream_name]
    where = f"stream {stream_name}"
    archive = stream.archive
    region = archive.region if archive else None
    lateness = stream.lateness if settings.lateness is None else settings.lateness
    pin = SourcePin(
        stream=stream_name,
        archive=None,
        times=SourceTimes(
            event_time=stream.event_time,
            ingest_time=archive.ingest_time if archive else INGEST_TIME,
            lateness=micros_of(lateness),
            skew=micros_of(stream.skew if settings.skew is None else settings.skew),
            zone=stream.zone,
        ),
        rows=SourceRows(
            partition=archive.partition if archive else PARTITION,
            offset=archive.offset if archive else OFFSET,
            order=settings.order,
            meta=settings.meta,
            where=_filter(source, region, request, settings.where, where),
        ),
    )
    if pin.rows.order == "position" and (pin.rows.partition is None or pin.rows.offset is None):
        raise PlanError(
            "order: position needs the archive's partition: and offset:",
            where=where,
            fix="name those columns in the stream's archive:, or leave order: out",
        )
    return pin


def _filter(
    source: str, region: str | None, request: RunRequest, given: str | None, where: str
) -> str | None:
    """All filters of a source as one: the YAML's, --where, --region."""
    parts = [given] if given else []
    for text in request.where:
        target, separator, condition = text.partition(":")
        if separator and target.strip().isidentifier():
            if target.strip() == source:
                parts.append(condition.strip())
        else:
            parts.append(text)
    for part in parts:
        parse_filter(part, where)  # each on its own: half of one must not close another's bracket
    if request.regions:
        if region is None:
            raise PlanError(
                "--region is given, but the archive names no region column",
                where=where,
                fix="add region: <column> to the stream's archive:, or use --where",
            )
        for name in request.regions:
            if "'" in name or "\\" in name:
                raise PlanError(f"{name!r} is not a region", where=where)
        names = ", ".join(f"'{name}'" for name in request.regions)
        parts.append(f"{region} in ({names})")
    return " and ".join(f"({part})" for part in parts) or None


def check_columns(pin: SourcePin, columns: Mapping[str, str], region: str | None) -> None:
    """Every column the YAML names must be in the archive."""
    named = [
        ("event_time", pin.times.event_time),
        ("archive.ingest_time", pin.times.ingest_time),
        ("archive.partition", pin.rows.partition),
        ("archive.offset", pin.rows.offset),
        ("archive.region", region),
    ]
    for key, column in named:
        if column is not None and column not in columns:
            raise PlanError(
                f"{key} names the column {column!r}, which {pin.location} does not have",
                where=f"stream {pin.stream}",
                fix=nearest(column, columns),
                column=column,
            )
    for key, column in (
        ("event_time", pin.times.event_time),
        ("archive.ingest_time", pin.times.ingest_time),
    ):
        if not columns[column].startswith("timestamp"):
            raise PlanError(
                f"{key} {column!r} is {columns[column]}, not a timestamp",
                where=f"stream {pin.stream}",
                fix="name a timestamp column",
            )


def snapshot_ages(
    catalog: Catalog, pins: dict[str, SourcePin], now: datetime
) -> dict[str, tuple[timedelta, timedelta]]:
    """How old each pinned snapshot is, and how old snapshots may get in its table."""
    pinned = {name: pin.archive for name, pin in pins.items() if pin.archive is not None}
    ages = {name: archive_of(pin).age(pin, catalog, now) for name, pin in pinned.items()}
    return {name: age for name, age in ages.items() if age is not None}

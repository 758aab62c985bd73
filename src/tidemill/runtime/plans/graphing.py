"""The graph of a pipeline, with what the YAML says of its sources and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError
from tidemill.iceberg.catalog import open_metadata
from tidemill.planning.plan import Beginning, RunRequest
from tidemill.runtime.code.binding import GivenParams
from tidemill.runtime.code.cache import recall
from tidemill.runtime.code.loading import load_pipeline
from tidemill.runtime.code.lookout import watching
from tidemill.runtime.instances.opening import open_instances
from tidemill.runtime.plans.planner import (
    Beside,
    Opened,
    analysed_facts,
    code_fingerprint,
    open_sources,
    require_pipeline,
    steps_of,
)
from tidemill.runtime.plans.tables import open_tables
from tidemill.runtime.reports.activity import Tell, untold
from tidemill.types import TimeRange, show_duration

if TYPE_CHECKING:
    from datetime import datetime

    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.graph.nodes import Graph

_DAY = timedelta(days=1)


def make_graph(
    loaded: LoadedConfig,
    pipeline: str,
    now: datetime,
    params: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    tell: Tell = untold,
) -> Graph:
    """The graph of a pipeline's code. Spark starts only for code that no plan has seen before."""
    require_pipeline(loaded, pipeline)
    given = GivenParams(loaded, pipeline, params)
    known = recall(loaded.home, code_fingerprint(loaded, pipeline, given))
    if known is not None and not known.facts.graph.nodes:
        known = None  # an earlier Tidemill has analysed it
    with watching() as seen:
        found = None if known else load_pipeline(loaded, pipeline, given)
    streams = found.streams if found else known.streams if known else ()
    joined = found.tables if found else known.tables if known else ()
    catalog = open_metadata(loaded)
    opened = _opened(loaded, catalog, pipeline, streams, now)
    tables = open_tables(loaded, joined)
    argument = found.instances if found else known.instances if known else None
    own = None if argument is None else open_instances(loaded, pipeline, catalog, argument)
    beside = Beside(tables, own)
    facts = analysed_facts(loaded, given, opened, known, spark, beside=beside, seen=seen, tell=tell)
    if not facts.graph.nodes:
        raise PlanError(
            "the plan of its code has a shape that cannot be drawn",
            where=f"pipeline {pipeline}",
            fix="report it with the pipeline's code; plans and runs do not need the drawing",
        )
    return facts.graph.told(dict(_settings(loaded, pipeline, opened)))


def _opened(
    loaded: LoadedConfig, catalog: Catalog, pipeline: str, streams: tuple[str, ...], now: datetime
) -> Opened:
    """The sources, each in the way in which a run would open it: history first if there is any."""
    span = TimeRange(now - _DAY, now)
    opened = Opened({}, {}, {})
    for source in streams:
        settings = loaded.config.pipelines[pipeline].source(source)
        is_live = loaded.config.streams[settings.stream or source].live is not None
        request = RunRequest(pipeline, span, live=Beginning.LATEST if is_live else None)
        found = open_sources(loaded, steps_of(loaded, catalog, request, now), request, (source,))
        opened.pins.update(found.pins)
        opened.readers.update(found.readers)
        opened.columns.update(found.columns)
    return opened


def _settings(
    loaded: LoadedConfig, pipeline: str, opened: Opened
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the YAML says of each source and output."""
    for name, pin in opened.pins.items():
        lateness, skew = (
            show_duration(timedelta(microseconds=length))
            for length in (pin.times.lateness, pin.times.skew)
        )
        stream = (f"stream {pin.stream}",) if pin.stream != name else ()
        times = f"{pin.times.event_time}, lateness {lateness}, skew {skew}"
        rows = (f"where {loaded.redact(pin.rows.where)}",) if pin.rows.where else ()
        yield name, (*stream, times, *rows)
    for name, sink in loaded.config.pipelines[pipeline].sinks.items():
        time = (f"time {sink.time}",) if sink.time else ()
        yield name, (f"{sink.type} {sink.target}", *time)

"""Make a plan: read the metadata, know the code, then let `planning` decide."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.config.places import find_loop, shared_sinks
from tidemill.config.sparksettings import meaning
from tidemill.connectors.archives.opening import open_reader
from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.iceberg.catalog import open_metadata
from tidemill.planning.code.allowlist import check_allowed
from tidemill.planning.code.params import Param
from tidemill.planning.plan import RunPlan, RunRequest
from tidemill.planning.resources import shuffles
from tidemill.planning.risks import (
    allowance_risks,
    describe_lateness,
    expiry_risks,
    rounding_risks,
    sharing_risks,
    table_risks,
    zone_risks,
)
from tidemill.planning.slices import advise, cut_by_rows, cut_by_width
from tidemill.planning.statistics import Extent, SourceStatistics
from tidemill.runtime.code.binding import GivenParams
from tidemill.runtime.code.cache import KnownCode, digest, recall, remember
from tidemill.runtime.code.calls import find_uses
from tidemill.runtime.code.loading import fingerprint, load_pipeline
from tidemill.runtime.code.lookout import Looked, Seen, watching
from tidemill.runtime.plans.backfillplan import BackfillSteps
from tidemill.runtime.plans.expecting import expectation_risks, find_checks, find_settling
from tidemill.runtime.plans.instances import check_pairs, choose_instances, scoped_margins
from tidemill.runtime.plans.pinning import check_columns, snapshot_ages
from tidemill.runtime.plans.tables import OpenTable, open_tables
from tidemill.runtime.reports.activity import Activity, ActivityKind, Tell, untold
from tidemill.runtime.spark.settings import local_cores
from tidemill.types import show_duration, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.connectors.archives.contract import ArchiveReader
    from tidemill.pipeline import Pipeline
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.planning.manifest import SourcePin
    from tidemill.runtime.instances.opening import OpenInstances


@dataclass(frozen=True)
class _Opened:
    """The sources of a plan, opened for reading metadata."""

    pins: dict[str, SourcePin]
    readers: dict[str, ArchiveReader]
    columns: dict[str, dict[str, str]]


@dataclass(frozen=True)
class _Beside:
    """What the code gets beside its streams: reference tables, and instances."""

    tables: Mapping[str, OpenTable]
    instances: OpenInstances | None

    @property
    def columns(self) -> dict[str, dict[str, str]]:
        """The types of all their columns."""
        found = {f"table {name}": table.columns for name, table in self.tables.items()}
        if self.instances is not None:
            pin = self.instances.pin
            found["instances"] = {
                "": f"{pin.argument} {pin.id} {pin.start} {pin.end}",
                **pin.columns,
            }
        return found


def make_plan(
    loaded: LoadedConfig,
    request: RunRequest,
    now: datetime,
    spark: SparkSession | None = None,
    tell: Tell = untold,
) -> RunPlan:
    """The dry run. ``now`` is frozen by the caller; Spark starts only for code not seen before.

    That takes seconds, so ``tell`` is told of it.
    """
    config = require_pipeline(loaded, request.pipeline)
    # A setting that is no number is refused before Spark starts.
    shuffles(loaded.config.spark, local_cores())
    catalog = open_metadata(loaded)
    given = GivenParams(loaded, request.pipeline, dict(request.params))
    code = code_fingerprint(loaded, request.pipeline, given)
    known = recall(loaded.home, code)
    with watching() as seen:
        pipeline = None if known else load_pipeline(loaded, request.pipeline, given)
    streams = pipeline.streams if pipeline else known.streams if known else ()
    params = pin_params(pipeline) if pipeline else known.params if known else {}
    argument = pipeline.instances if pipeline else known.instances if known else None
    whole, paired = request, choose_instances(loaded, request, argument)
    request = request if paired is None else paired.asked(request)
    loop = find_loop(loaded.config.streams, config, streams, request.into)
    if loop is not None:
        raise PlanError(loop, where=f"pipeline {request.pipeline}", fix="write elsewhere")
    steps = _steps(loaded, catalog, request, now)
    joined = pipeline.tables if pipeline else known.tables if known else ()
    tables = open_tables(loaded, joined)
    own = None if paired is None else paired.opened
    opened = _open_sources(loaded, steps, request, streams)
    if known is None:
        steps.foresee(opened.pins, opened.readers)
    joined_to = _Beside(tables, own)
    facts = _facts(loaded, given, opened, known, spark, beside=joined_to, seen=seen, tell=tell)
    if known is None or facts is not known.facts:
        # It was analysed, for seconds: a table may have expired the snapshot meanwhile.
        opened = _open_sources(loaded, steps, request, streams)
    find = partial(find_uses, loaded, given)
    allowed = check_allowed(request.pipeline, facts.usages, config.allow, find)
    if argument is not None:
        check_pairs(request.pipeline, facts, argument, find)
    check_outputs(request.pipeline, config, facts)
    expect = find_checks(request.pipeline, config, facts)
    warm_up = config.warm_up if request.warm_up is None else request.warm_up
    look_ahead = config.look_ahead if request.look_ahead is None else request.look_ahead
    is_told = warm_up is not None or look_ahead is not None
    is_scoped = paired is not None and facts.is_scoped and not is_told
    margins = scoped_margins() if is_scoped else steps.margins(facts, warm_up, look_ahead)
    settles = find_settling(facts, config, look_ahead) if request.live is not None else {}
    narrowed = {
        name: replace(pin, rows=replace(pin.rows, columns=facts.columns[name]))
        for name, pin in opened.pins.items()
    }
    pins = steps.place(narrowed, to_micros(now))
    needed = steps.needed(margins, pins)
    read = to_micros(needed.start), to_micros(needed.end)
    statistics = {
        name: SourceStatistics(tuple(extent for _, extent in reader.extents(*read)))
        for name, reader in opened.readers.items()
    }
    risks = (
        *steps.range_risks(needed, now, statistics),
        *steps.margin_risks(margins, warm_up, look_ahead),
        *allowance_risks(allowed),
        *rounding_risks(facts.rounded),
        *_differences(opened, pins, read),
        *expiry_risks(pins, snapshot_ages(catalog, pins, now)),
        *steps.risks(pins),
        *expectation_risks(expect, config, request.live is None, settles),
        *(risk for name, sink in config.sinks.items() for risk in sink.risks(name)),
        *table_risks({name: table.pin for name, table in tables.items()}, request.live is not None),
        *(() if paired is None else paired.risks),
        *sharing_risks(shared_sinks(loaded.config.pipelines, request.pipeline)),
        *zone_risks({name: (pin.times, opened.columns[name]) for name, pin in opened.pins.items()}),
    )
    span = steps.span(needed, statistics, pins, opened.readers)
    extents = [extent for found in statistics.values() for extent in found.extents]
    boundaries = _boundaries(request, config, span, extents)
    setting = _slice_setting(request, config)
    return RunPlan(
        request=whole,
        created=now,
        fingerprint=code,
        facts=facts,
        margins=margins,
        input=needed,
        boundaries=boundaries,
        pins=pins,
        statistics=statistics,
        risks=risks,
        advice=tuple(advise(boundaries, extents, setting)) if setting else (),
        lateness={name: describe_lateness(pins[name], statistics[name]) for name in pins},
        expect=expect,
        settles=settles,
        params=params,
        tables={name: table.pin for name, table in tables.items()},
        instances=None if paired is None else paired.plan(facts, statistics, request.output(now)),
    )


def _differences(
    opened: _Opened, pins: dict[str, SourcePin], read: tuple[int, int]
) -> Iterator[str]:
    """How the files of each source differ, in the columns that the pipeline uses."""
    for name, reader in opened.readers.items():
        found = reader.differences(*read)
        used = {*pins[name].rows.columns, pins[name].times.event_time}
        yield from (f"{name}: {text}" for column, text in found.items() if column in used)


def require_pipeline(loaded: LoadedConfig, name: str) -> PipelineConfig:
    """The pipeline's section, or an error with the nearest name."""
    found = loaded.config.pipelines.get(name)
    if found is None:
        raise ConfigError(
            f"there is no pipeline {name!r}",
            where=str(loaded.path),
            fix=nearest(name, loaded.config.pipelines),
        )
    return found


def pin_params(pipeline: Pipeline) -> dict[str, Param]:
    """The values of a pipeline's parameters, as a manifest keeps them."""
    return {name: Param.of(value) for name, value in pipeline.params.items()}


def code_fingerprint(loaded: LoadedConfig, name: str, given: GivenParams | None = None) -> str:
    """The name of a pipeline's analysis, with its parameters, inputs and Spark's settings."""
    values = (given or GivenParams(loaded, name)).values
    params = [(key, type(value).__name__, str(value)) for key, value in sorted(values.items())]
    config = loaded.config.pipelines[name]
    sources = {key: value.model_dump_json() for key, value in config.sources.items()}
    streams = {key: value.event_time for key, value in loaded.config.streams.items()}
    conf = {key: str(value) for key, value in loaded.config.spark.conf.items()}
    tables = {key: value.model_dump_json() for key, value in loaded.config.tables.items()}
    own = config.instances
    columns = () if own is None else (own.id, own.from_, own.to)
    facts = (*columns, sources, streams, conf, params, tables)
    return fingerprint(loaded, name, map(str, facts))


def _steps(
    loaded: LoadedConfig, catalog: Catalog, request: RunRequest, now: datetime
) -> BackfillSteps:
    """The steps in which backfills and runs that go on live differ."""
    if request.live is None:
        return BackfillSteps(loaded, catalog, request)
    from tidemill.runtime.plans.liveplan import LiveSteps

    return LiveSteps(loaded, catalog, request, request.live, now)


def _open_sources(
    loaded: LoadedConfig, steps: BackfillSteps, request: RunRequest, streams: tuple[str, ...]
) -> _Opened:
    pins, readers, columns = {}, {}, {}
    _check_filter_targets(request, streams)
    for source in streams:
        pin = steps.pin(source)
        reader = open_reader(pin, steps.catalog)
        archive = loaded.config.streams[pin.stream].archive
        found = reader.columns()
        check_columns(pin, found, archive.region if archive else None)
        reader.verify()
        pins[source], readers[source], columns[source] = pin, reader, found
    return _Opened(pins, readers, columns)


def _check_filter_targets(request: RunRequest, streams: tuple[str, ...]) -> None:
    for text in request.where:
        target = re.match(r"^(\w+):", text)
        if target and target[1] not in streams:
            raise PlanError(
                f"--where names the source {target[1]!r}", fix=nearest(target[1], streams)
            )


def _facts(
    loaded: LoadedConfig,
    given: GivenParams,
    opened: _Opened,
    known: KnownCode | None,
    spark: SparkSession | None,
    *,
    beside: _Beside,
    seen: Seen,
    tell: Tell,
) -> PipelineFacts:
    """From the cache, or by asking a small Spark session."""
    columns, name = digest({**opened.columns, **beside.columns}), given.pipeline
    if known is not None and known.columns == columns:
        return known.facts
    tell(Activity(ActivityKind.ANALYSING))
    from tidemill.runtime.code.analyst import analyse
    from tidemill.runtime.spark.session import build_session
    from tidemill.runtime.spark.settings import with_settings

    session = spark or build_session(
        loaded.config.spark.model_copy(update={"master": "local[1]"}),
        1,
        f"plan {name}",
        log=_analysis_log(loaded.home),
    )
    try:
        with with_settings(session, meaning(loaded.config.spark.conf)):
            # As in a run, code is imported when there is a session: UDFs ask for its settings.
            with watching() as again:
                pipeline = load_pipeline(loaded, name, given)
            seen.add(again)
            facts = analyse(
                session,
                pipeline,
                {source: opened.readers[source].schema() for source in pipeline.streams},
                {source: opened.pins[source].times.event_time for source in pipeline.streams},
                {source for source in pipeline.streams if opened.pins[source].rows.meta},
                tables={name: beside.tables[name].schema for name in pipeline.tables},
                instances=None if beside.instances is None else beside.instances.bound(),
                seen=seen,
                twice=True,
            )
    finally:
        if spark is None:
            session.stop()
    looked = Looked.now(seen)
    analysed = KnownCode(
        pipeline.streams,
        columns,
        facts,
        looked,
        pin_params(pipeline),
        pipeline.tables,
        pipeline.instances,
    )
    remember(loaded.home, code_fingerprint(loaded, name, given), analysed)
    return facts


def _analysis_log(home: Path) -> Path:
    folder = home / "analysis"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(os.devnull)
    return folder / "spark.log"


def check_outputs(name: str, config: PipelineConfig, facts: PipelineFacts) -> None:
    """The pipeline's outputs and the YAML's sinks must be the same, and their columns there."""
    where = f"pipeline {name}"
    for output in facts.schemas:
        if output not in config.sinks:
            raise PlanError(
                f"the output {output!r} has no sink",
                where=where,
                fix=f"add it to sinks:; {nearest(output, config.sinks)}",
            )
    for output, sink in config.sinks.items():
        if output not in facts.schemas:
            raise PlanError(
                f"the sink {output!r} has no output",
                where=where,
                fix=f"return it from the pipeline; {nearest(output, facts.schemas)}",
            )
        fields = {f["name"]: f["type"] for f in json.loads(facts.schemas[output])["fields"]}
        for column in [*([sink.time] if sink.time else []), *sink.key]:
            if column not in fields:
                raise PlanError(
                    f"the sink {output!r} names the column {column!r}, which its output lacks",
                    where=where,
                    fix=nearest(column, fields),
                    column=column,
                )
        if sink.time and fields[sink.time] not in ("timestamp", "timestamp_ntz"):
            raise PlanError(
                f"the time {sink.time!r} of the sink {output!r} is a {fields[sink.time]}",
                where=where,
                fix="name a timestamp column",
            )
        sink.check_output(output, facts.schemas[output], where)


def _boundaries(
    request: RunRequest,
    config: PipelineConfig,
    span: tuple[int, int],
    extents: list[Extent],
) -> tuple[int, ...]:
    """The boundary list; a run that begins with its log has no history to cut."""
    if span[0] >= span[1] and request.live is not None:
        return span[:1]
    if request.slice is not None:
        return cut_by_width(span, request.slice, config.max_misalignment)
    if request.slice_rows is not None:
        return cut_by_rows(span, extents, request.slice_rows, config.max_misalignment, size=None)
    return cut_by_rows(span, extents, limit=config.max_misalignment)


def _slice_setting(request: RunRequest, config: PipelineConfig) -> str:
    """What limits the width of slices, as the user wrote it; empty if only the data does."""
    if request.slice is not None:
        return f"--slice {show_duration(request.slice)}"
    if request.slice_rows is not None:
        return f"--slice-rows {request.slice_rows}"
    if config.max_misalignment is not None:
        return f"max_misalignment: {show_duration(config.max_misalignment)}"
    return ""

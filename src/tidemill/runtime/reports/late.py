"""Read a run's late rows from their table, count them, and compare their delays to all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.loader import LoadedConfig
from tidemill.errors import PlanError, RequestError, RunError, nearest
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.judging.late_causes import probable_cause, zone_shifts
from tidemill.planning.lateness import DelayBucket, Keeping, delay_histogram, latenesses_to_keep
from tidemill.planning.manifest import Manifest, SourcePin
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import Registry
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import FOREVER_MICROS, from_micros, show_duration, show_instant

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LATE = "late"
"""The reason of rows that a longer lateness would keep; rows of other reasons it would not."""
_EXAMPLES = 3
_FARTHEST_FIRST = [
    ("far", "descending"),
    *((name, "ascending") for name in ("partition", "offset", "ingest_time", "row")),
]
"""Rows with equal delays are ordered by position, so that the examples are the same each time."""
_FARTHEST = 2**62
_FIRST_YEAR = -62_135_596_800_000_000
_RUNS_NAMED = 8
_MANY = 20
"""Fewer late rows than these may lie near a whole hour by chance."""


@dataclass(frozen=True)
class LateRow:
    """One row of the late table. Times are text, because an event time may be in any year."""

    reason: str
    partition: int | None
    offset: int | None
    ingest_time: str
    event_time: str
    delay: timedelta  # negative: from the future
    row: str

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        found = asdict(self)
        row, delay = found.pop("row"), found.pop("delay")
        return {**found, "delay_seconds": delay.total_seconds(), "row": row}


@dataclass(frozen=True)
class SourceLate:
    """The late rows of one source, and how long its lateness would have to be to keep them.

    ``histogram`` and ``keeping`` cover rows whose reason is ``late``; ``examples`` are the rows
    with the longest delays, and those farthest in the future.
    """

    source: str
    lateness: timedelta
    skew: timedelta
    reasons: dict[str, int]
    histogram: tuple[DelayBucket, ...]
    keeping: tuple[Keeping, ...]
    examples: tuple[LateRow, ...]
    cause: str = ""  # why its rows are late, probably
    is_shifted: bool = False  # by a zone, it seems

    @property
    def rows(self) -> int:
        """All its rows in the late table."""
        return sum(self.reasons.values())

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "source": self.source,
            "lateness": show_duration(self.lateness),
            "skew": show_duration(self.skew),
            "late": self.rows,
            "cause": self.cause or None,
            "reasons": self.reasons,
            "histogram": [
                {
                    "over_seconds": bucket.over.total_seconds(),
                    "up_to_seconds": bucket.up_to.total_seconds(),
                    "rows": bucket.rows,
                    "kept": bucket.kept,
                }
                for bucket in self.histogram
            ],
            "keeping": [
                {
                    "percent": keeping.percent,
                    "lateness": show_duration(keeping.lateness),
                    "seconds": keeping.lateness.total_seconds(),
                }
                for keeping in self.keeping
            ],
            "examples": [row.to_json() for row in self.examples],
        }


@dataclass(frozen=True)
class LateReport:
    """What is in a run's late table.

    Rows read are counted per run, not per source: ``counted`` names the sources of the run, and
    percentages refer to the rows of all of them. ``runs`` are the runs that wrote into the table;
    with ``--into`` there may be several.
    """

    run: str
    pipeline: str
    table: str
    runs: tuple[str, ...]
    read: int
    on_time: int
    dead: int
    counted: tuple[str, ...]
    sources: tuple[SourceLate, ...]

    @property
    def late(self) -> int:
        """The number of rows in the late table, of the sources that were asked for."""
        return sum(source.rows for source in self.sources)

    def to_json(self) -> dict[str, Any]:
        """One object, as ``late --json`` prints it."""
        return {
            "run": self.run,
            "pipeline": self.pipeline,
            "table": self.table,
            "runs": list(self.runs),
            "rows": {
                "in": self.read,
                "on_time": self.on_time,
                "late": self.late,
                "dead": self.dead,
                "sources": list(self.counted),
            },
            "sources": [source.to_json() for source in self.sources],
        }


@dataclass
class _Gathered:
    """What was found of one source so far; the table is read once, in batches."""

    reasons: Counter[str] = field(default_factory=Counter)
    delays: list[pa.Array] = field(default_factory=list)
    others: list[pa.Array] = field(default_factory=list)  # delays of rows with other reasons
    examples: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Add rows of the source."""
        delay = pc.subtract(_micros(rows.column("ingest_time")), _micros(rows.column("event_time")))
        rows = rows.append_column("delay", delay).append_column("far", pc.abs(delay))
        for reason in pc.unique(rows.column("reason")).to_pylist():
            chosen = rows.filter(pc.equal(rows.column("reason"), reason))
            self.reasons[reason] += len(chosen)
            kept = self.delays if reason == LATE else self.others
            kept.append(chosen.column("delay").combine_chunks())
            held = self.examples.get(reason, chosen.slice(0, 0))
            self.examples[reason] = pa.concat_tables([held, chosen]).sort_by(_FARTHEST_FIRST)[
                :_EXAMPLES
            ]

    def sorted_delays(self) -> Any:
        """The sorted delays of the rows whose reason is `late`, in microseconds."""
        return _sorted(self.delays)

    def cause(self, pin: SourcePin, on_time: int) -> tuple[str, bool]:
        """Why the rows are late, probably, and whether it is a zone; empty if none is."""
        delays = _sorted([*self.delays, *self.others])
        if not len(delays):
            return "", False
        told = probable_cause(pin.stream, pin.times, on_time + len(delays), delays)
        is_many = len(delays) >= _MANY
        return told, is_many and bool(zone_shifts(delays, pin.times.lateness))

    def example_rows(self) -> tuple[LateRow, ...]:
        """The example rows; those with the reason `late` come first."""
        reasons = sorted(self.examples, key=lambda reason: (reason != LATE, reason))
        return tuple(row for reason in reasons for row in _examples(self.examples[reason]))


def read_late(
    loaded: LoadedConfig, registry: Registry, pipeline_or_run: str, source: str | None = None
) -> LateReport:
    """The report of a run, or of a pipeline's latest run that has read rows. No Spark."""
    catalog = open_catalog(loaded)
    manifest = find_reader(loaded, registry, pipeline_or_run)
    if source is not None and source not in manifest.sources:
        raise PlanError(
            f"the run {manifest.run} has no source {source!r}",
            fix=nearest(source, manifest.sources),
            source=source,
        )
    gathered = {name: _Gathered() for name in manifest.sources}
    for rows in _batches(catalog, manifest.outputs.late_table):
        for name in pc.unique(rows.column("source")).to_pylist():
            chosen = rows.filter(pc.equal(rows.column("source"), name))
            gathered.setdefault(name, _Gathered()).add(chosen)
    runs = _writers(loaded, registry, manifest)
    totals = [registry.totals(run) for run in runs]
    on_time = sum(each.on_time for each in totals)
    decided = on_time + sum(found.reasons[LATE] for found in gathered.values())
    wanted = manifest.sources if source is None else [source]
    return LateReport(
        run=manifest.run,
        pipeline=manifest.pipeline,
        table=manifest.outputs.late_table,
        runs=runs,
        read=sum(each.read for each in totals),
        on_time=on_time,
        dead=sum(each.dead for each in totals),
        counted=tuple(manifest.sources),
        sources=tuple(_source(manifest, name, gathered[name], decided) for name in wanted),
    )


def _sorted(delays: list[pa.Array]) -> Any:
    found = pa.concat_arrays(delays) if delays else pa.array([], pa.int64())
    return found.take(pc.array_sort_indices(found)).to_numpy()


def _source(manifest: Manifest, name: str, found: _Gathered, rows: int) -> SourceLate:
    """The late rows of one source; ``rows`` counts the read rows that are on time or `late`."""
    pin, delays = manifest.sources[name], found.sorted_delays()
    lateness = timedelta(microseconds=pin.times.lateness)
    cause, is_shifted = found.cause(pin, rows - len(delays))
    return SourceLate(
        source=name,
        lateness=lateness,
        skew=timedelta(microseconds=pin.times.skew),
        reasons=dict(sorted(found.reasons.items())),
        histogram=delay_histogram(rows, lateness, delays),
        keeping=latenesses_to_keep(rows, lateness, delays),
        examples=found.example_rows(),
        cause=cause,
        is_shifted=is_shifted,
    )


def find_reader(loaded: LoadedConfig, registry: Registry, name: str) -> Manifest:
    """The manifest of the named run, or of the pipeline's latest run that has read rows.

    That run may have no late table, because the table is made with the first late row.
    """
    records = registry.runs()
    if any(record.run == name for record in records):
        return RunFolder.of(loaded.home, name).read_manifest()
    if name not in loaded.config.pipelines:
        known = [record.run for record in records[-_RUNS_NAMED:]]
        raise RequestError(
            f"there is no pipeline or run {name!r}",
            fix=nearest(name, [*loaded.config.pipelines, *known]),
        )
    for record in reversed(records):
        if record.pipeline == name and registry.totals(record.run).batches:
            manifest = find_manifest(loaded.home, record.run)
            if manifest is not None:
                return manifest
    raise RunError(
        f"no run of {name!r} has read rows yet",
        fix=f"'tidemill backfill {name}' starts one; 'tidemill runs' lists them",
    )


def _writers(loaded: LoadedConfig, registry: Registry, manifest: Manifest) -> tuple[str, ...]:
    """The runs whose rows are in the late table; only a table given by --into may have several."""
    if manifest.run in manifest.outputs.late_table:
        return (manifest.run,)
    others = {record.run: find_manifest(loaded.home, record.run) for record in registry.runs()}
    return tuple(
        run
        for run, other in others.items()
        if other and other.outputs.late_table == manifest.outputs.late_table
    )


def _batches(catalog: Catalog, name: str) -> Iterator[pa.Table]:
    """The table's rows in batches; none if the run has not begun and there is no table yet."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    if not name:
        return  # its parent tells of late rows
    try:
        table = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    for batch in table.scan().to_arrow_batch_reader():
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times in microseconds, clamped so that the difference of two fits into 64 bits."""
    micros = pc.max_element_wise(times.cast(pa.int64()), -_FARTHEST)
    return pc.min_element_wise(micros, _FARTHEST - 1)


def _examples(table: pa.Table) -> Iterator[LateRow]:
    """Rows with times as text: Python has no times before year 1 or after 9999."""
    for name in ("ingest_time", "event_time"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.int64()))
    for row in table.to_pylist():
        yield LateRow(
            reason=row["reason"],
            partition=row["partition"],
            offset=row["offset"],
            ingest_time=_moment(row["ingest_time"]),
            event_time=_moment(row["event_time"]),
            delay=timedelta(microseconds=row["delay"]),
            row=row["row"],
        )


def _moment(micros: int) -> str:
    if micros < _FIRST_YEAR:
        return "before the year 1"
    return "after the year 9998" if micros >= FOREVER_MICROS else show_instant(from_micros(micros))

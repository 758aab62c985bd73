"""Read the rows of a run's output, of its late and dead rows, or of any table. Starts no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.connectors.archives.filtering import RowFilter
from tidemill.connectors.sinks.contract import SinkRun, arrow_schema, open_sinks
from tidemill.errors import PlanError, RunError, SinkError, nearest
from tidemill.iceberg.catalog import load_table, open_catalog
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.runtime.reports.overview import latest_run
from tidemill.runtime.reports.states import as_json
from tidemill.types import FOREVER_MICROS, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import Registry

SIDES = ("late", "dead")
_SORTED = 1_000_000
"""Rows among which the first ones are looked for; those of a larger place come in any order."""
_FIRST_YEAR = -62_135_596_800_000_000
_IN_LOG_ORDER = ("ingest_time", "source", "partition", "offset")


@dataclass(frozen=True)
class Head:
    """The first rows of a place, and how many there are in all; None: nobody has counted them."""

    rows: pa.Table
    total: int | None

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as plain values."""
        return plain_rows(self.rows)


@dataclass(frozen=True)
class PlaceRows:
    """The rows that are at a place now. Every reading reads the place again."""

    place: str
    what: str  # which rows of the run; empty: it is a table
    schema: Callable[[], pa.Schema]
    scan: Callable[[], Iterator[pa.RecordBatch]]
    order: tuple[str, ...] = ()
    run: str | None = None
    pipeline: str | None = None
    others: tuple[str, ...] = ()  # the run's outputs beside this one

    def batches(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows for which the filter is true, in any order."""
        keep = None
        for batch in self.scan():
            if where is not None and keep is None:
                keep = RowFilter(batch.schema, where, self.place)
            yield batch if keep is None else keep(batch)

    def to_arrow(self, where: str | None = None) -> pa.Table:
        """All rows for which the filter is true, in order."""
        found = list(self.batches(where))
        schema = found[0].schema if found else self.schema()
        return self._sorted(pa.Table.from_batches(found, schema))

    def head(self, rows: int, where: str | None = None) -> Head:
        """The first rows in the order of time and key. Memory does not grow with the place.

        A place of more than a million rows, and one without an order, gives any of its rows.
        """
        held, seen = None, 0
        for batch in self.batches(where):
            table = pa.Table.from_batches([batch])
            both = table if held is None else pa.concat_tables([held, table])
            held, seen = self._sorted(both).slice(0, rows), seen + len(batch)
            if seen > (_SORTED if self.order else rows):
                return Head(held, None)
        return Head(self.schema().empty_table() if held is None else held, seen)

    def _sorted(self, table: pa.Table) -> pa.Table:
        kinds = {field.name: field.type for field in table.schema}
        known = [name for name in self.order if name in kinds]
        plain = [(name, "ascending") for name in known if not pa.types.is_nested(kinds[name])]
        return table.sort_by(plain) if plain else table


def find_rows(
    loaded: LoadedConfig, registry: Registry, name: str | None, output: str | None = None
) -> PlaceRows:
    """The rows of a run, of a pipeline's latest run, or of a table of the catalog.

    ``name`` is one of these; None is the latest run. ``output`` is one of the run's outputs, or
    ``late`` or ``dead``.
    """
    run = _find_run(loaded, registry, name)
    if run is not None:
        return _of_run(loaded, registry, run, output)
    assert name is not None
    if "." not in name:
        known = [*loaded.config.pipelines, *(each.run for each in registry.runs()[-8:])]
        raise RunError(
            f"there is no run, pipeline or table {name!r}",
            fix=f"{nearest(name, known)}; a table is named with its namespace: marts.{name}",
        )
    if output is not None:
        raise PlanError(
            f"{name} is a table and has no output {output!r}",
            fix="name a run for --output, --late and --dead",
        )
    table = load_table(open_catalog(loaded), name, "show")

    def scan() -> Iterator[pa.RecordBatch]:
        with table.scan().to_arrow_batch_reader() as found:
            yield from found

    return PlaceRows(name, "", table.schema().as_arrow, scan)


def _find_run(loaded: LoadedConfig, registry: Registry, name: str | None) -> str | None:
    """The run that is meant; None: no run is. A pipeline stands for its latest run."""
    if name is None:
        return latest_run(registry)
    records = registry.runs()
    for record in records:
        if name in (record.run, record.name):
            return record.run
    if name not in loaded.config.pipelines:
        return None
    for record in reversed(records):
        has_folder = RunFolder.of(loaded.home, record.run).has_manifest()
        if record.pipeline == name and has_folder:
            return record.run
    raise RunError(
        f"the pipeline {name!r} has no runs yet", fix=f"'tidemill backfill {name}' starts one"
    )


def _of_run(loaded: LoadedConfig, registry: Registry, run: str, output: str | None) -> PlaceRows:
    folder = RunFolder.of(loaded.home, run)
    if not folder.has_manifest():
        raise RunError(
            f"the run {run} has lost its folder, which says where its rows are",
            fix="name the table itself: tidemill show NAMESPACE.TABLE",
        )
    manifest = folder.read_manifest()
    sinks = manifest.outputs.sinks
    if output in SIDES and output not in sinks:
        found = _side(loaded, manifest, output)
    else:
        chosen = next(iter(sinks)) if output is None else output
        if chosen not in sinks:
            raise PlanError(
                f"the run {run} has no output {chosen!r}",
                fix=nearest(chosen, [*sinks, *SIDES]),
                output=chosen,
            )
        gone = missing_tables(loaded, registry, manifest)
        if chosen in gone:
            raise _gone(manifest, gone[chosen])
        found = _output(loaded, manifest, folder, chosen)
    return replace(found, run=run, pipeline=manifest.pipeline)


def missing_tables(loaded: LoadedConfig, registry: Registry, manifest: Manifest) -> dict[str, str]:
    """The outputs whose tables the run has made and that are gone; each with its table.

    A run makes its tables before its first batch.
    """
    record = registry.get(manifest.run)
    if record.state is not RunState.FINISHED and not registry.totals(manifest.run).batches:
        return {}
    folder = RunFolder.of(loaded.home, manifest.run)
    sinks = open_sinks(SinkRun(loaded, open_catalog(loaded), manifest, folder.path))
    return {
        name: sink.place
        for name, sink in sinks.items()
        if sink_is_readable(manifest.outputs.sinks[name].kind) and not sink.is_there()
    }


def _gone(manifest: Manifest, table: str) -> SinkError:
    return SinkError(
        f"the table {table}, which the run {manifest.run} has written, is gone",
        where=f"run {manifest.run}",
        fix="'tidemill shadows drop' or somebody else has dropped it; "
        f"'tidemill forget {manifest.run}', and run the backfill again"
        if manifest.times.ends
        else "restore the table",
    )


def _output(loaded: LoadedConfig, manifest: Manifest, folder: RunFolder, name: str) -> PlaceRows:
    """An output; of a backfill the rows of its range, because other runs may write there too."""
    pin = manifest.outputs.sinks[name]
    sink = open_sinks(SinkRun(loaded, open_catalog(loaded), manifest, folder.path))[name]
    if not sink_is_readable(pin.kind):
        raise SinkError(
            f"the rows of {pin.place} are not read back",
            where=f"output {name}",
            fix="read them as their consumers do",
        )
    columns = [field["name"] for field in json.loads(pin.schema).get("fields", [])]
    span = manifest.kept if manifest.times.ends else None
    order = (*([pin.time] if pin.time else []), *(key for key in pin.key if key != pin.time))
    return PlaceRows(
        pin.place,
        name,
        lambda: arrow_schema(pin),
        lambda: sink.scan(columns, span),
        order,
        others=tuple(each for each in manifest.outputs.sinks if each != name),
    )


def sink_is_readable(kind: str) -> bool:
    """Whether the rows of a sink of this kind can be read back."""
    from tidemill.config.sink import SINKS

    return bool(SINKS.find(kind).is_readable)


def _side(loaded: LoadedConfig, manifest: Manifest, name: str) -> PlaceRows:
    """The late or the dead rows; a table that is not there has none."""
    from tidemill.connectors.sinks.iceberg.table import SideTable

    outputs = manifest.outputs
    place = outputs.late_table if name == "late" else outputs.dead_table
    folder = RunFolder.of(loaded.home, manifest.run).path
    table = SideTable(SinkRun(loaded, open_catalog(loaded), manifest, folder), place)

    def scan() -> Iterator[pa.RecordBatch]:
        return table.scan(SIDE_SCHEMA.names, None) if place else iter(())

    return PlaceRows(place, name, lambda: SIDE_SCHEMA, scan, _IN_LOG_ORDER)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON can hold them; also with times that Python has not, before year 1 or so."""
    try:
        rows = table.to_pylist()
    except (OverflowError, ValueError):
        for at, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                micros = table.column(at).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
                texts = [_moment(moment) for moment in micros.to_pylist()]
                table = table.set_column(at, field.name, pa.array(texts, pa.string()))
        rows = table.to_pylist()
    found: list[dict[str, Any]] = as_json(rows)
    return found


def _moment(micros: int | None) -> str | None:
    if micros is None:
        return None
    if micros >= FOREVER_MICROS:
        return "after the year 9998"
    if micros < _FIRST_YEAR:
        return "before the year 1"
    return show_instant(from_micros(micros))

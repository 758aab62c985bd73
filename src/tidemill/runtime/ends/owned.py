"""What a run owns beside its folder: shadows, its own late and dead tables, tags on archives.

The id of a run is made when it starts, so a place whose name ends with the id of the run that
writes it was named by no person. Every other place stays, and so does a shadow that somebody uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.config.loader import LoadedConfig
from tidemill.config.places import table_key, table_of
from tidemill.connectors.sinks.contract import Sink, SinkRun, open_sinks
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.table import open_sides
from tidemill.errors import RunError, SinkError
from tidemill.iceberg.catalog import find_table, list_tables, tags_of, unpin_snapshot
from tidemill.planning.manifest import Manifest, Outputs, Resources, RunIdentity, RunTimes
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunRecord, open_registry
from tidemill.runtime.starts.naming import find_manifest
from tidemill.runtime.starts.starting import release

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_SIDES = ("", "__late", "__dead")


def is_own(place: str, run: str) -> bool:
    """Whether the place is a shadow of the run, or the table of its late or dead rows."""
    return any(place.endswith(f"__{run}{side}") for side in _SIDES)


@dataclass(frozen=True)
class Places:
    """Where a run wrote: what may be deleted, and what stays, with the reason."""

    own: dict[str, Sink]
    stay: dict[str, str]


def find_places(loaded: LoadedConfig, catalog: Catalog, record: RunRecord) -> Places:
    """The places of a run that exist now. Nothing is changed.

    If the run's folder is gone, or its manifest is damaged, its tables are found by their names.
    """
    manifest = find_manifest(loaded.home, record.run) or _by_name(catalog, record)
    usage = Usage(loaded, record.run)
    own, stay = dict[str, Sink](), dict[str, str]()
    for place, sink in _opened(loaded, catalog, manifest):
        if isinstance(sink, str):
            stay[place] = sink
        elif not is_own(place, record.run):
            stay[place] = "it is not the run's own"
        elif sink.is_there():
            why = usage.reason(place, sink)
            if why:
                stay[place] = why
            else:
                own[place] = sink
    return Places(own, stay)


def _opened(
    loaded: LoadedConfig, catalog: Catalog, manifest: Manifest
) -> Iterator[tuple[str, Sink | str]]:
    """The run's places, each opened, or with the reason why it cannot be."""
    folder = RunFolder.of(loaded.home, manifest.run).path
    for name, pin in manifest.outputs.sinks.items():
        one = replace(manifest, outputs=replace(manifest.outputs, sinks={name: pin}))
        try:
            yield pin.place, open_sinks(SinkRun(loaded, catalog, one, folder))[name]
        except RunError as error:
            yield pin.place, error.message
    yield from open_sides(SinkRun(loaded, catalog, manifest, folder)).items()


def _by_name(catalog: Catalog, record: RunRecord) -> Manifest:
    """A manifest with nothing but the tables of the catalog that bear the run's id."""
    found = [name for name in list_tables(catalog) if is_own(name, record.run)]
    return Manifest(
        RunIdentity(record.run, record.pipeline, record.mode, 0),
        RunTimes((0, 0), (0,)),
        {},
        Outputs({name: table_pin(name, "") for name in found}),
        Resources(1, 1),
    )


def _writers(sink: Sink) -> Iterable[str]:
    """The runs that have commits at the place; none if its metadata was deleted by hand."""
    try:
        return sink.stamps()
    except FileNotFoundError:
        return ()


@dataclass(frozen=True)
class Usage:
    """Who uses a shadow beside the run that made it."""

    loaded: LoadedConfig
    run: str

    def reason(self, place: str, sink: Sink) -> str:
        """Why the place stays; empty if nobody else uses it."""
        if table_key(place.rpartition(":")[2]) in self._named:  # without the kind: postgres:…
            return "the YAML names it"
        others = sorted({*_writers(sink), *self._users.get(place, [])} - {self.run})
        if others:
            return f"the run {others[0]} uses it, too"
        try:
            borrower = sink.lent_to(self._productive)
        except SinkError as error:
            return error.message
        return f"{borrower} has files of it" if borrower else ""

    @cached_property
    def _named(self) -> set[tuple[str, ...]]:
        archives = [table_of(stream) for stream in self.loaded.config.streams.values()]
        return {table_key(name) for name in (*self._productive, *filter(None, archives))}

    @cached_property
    def _productive(self) -> list[str]:
        """The tables that sinks of the YAML name."""
        pipelines = self.loaded.config.pipelines.values()
        return [sink.target for pipeline in pipelines for sink in pipeline.sinks.values()]

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        """The runs that write or read a place, by place, as far as they have their folders."""
        found: dict[str, list[str]] = {}
        for record in open_registry(self.loaded.home).runs():
            manifest = find_manifest(self.loaded.home, record.run)
            if manifest is None:
                continue
            pins = [pin.location for pin in manifest.sources.values()]
            for place in (*pins, *(pin.place for pin in manifest.outputs.sinks.values())):
                found.setdefault(place, []).append(record.run)
        return found


def find_tags(loaded: LoadedConfig, catalog: Catalog, run: str) -> list[str]:
    """The archives of the YAML's streams that have a tag of the run."""
    names = dict.fromkeys(filter(None, map(table_of, loaded.config.streams.values())))
    tables = {name: find_table(catalog, name) for name in names}
    return [name for name, table in tables.items() if table is not None and tags_of(table, run)]


def remove_tags(loaded: LoadedConfig, catalog: Catalog, run: str) -> None:
    """Remove the run's tags from archives; once more does no harm."""
    manifest = find_manifest(loaded.home, run)
    if manifest is not None:
        release(catalog, manifest)
    for name in find_tags(loaded, catalog, run):
        table = find_table(catalog, name)
        if table is not None:
            unpin_snapshot(table, run)

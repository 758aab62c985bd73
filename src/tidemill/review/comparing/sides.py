"""Find the two sides of each output of a run: its own table, and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.config.sink import SINKS
from tidemill.connectors.sinks.contract import Sink, SinkRun, View
from tidemill.errors import ConfigError, PlanError, RunError, SinkError, nearest
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.folder import RunFolder
from tidemill.types import FOREVER_MICROS, TimeRange, from_micros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemill.config.loader import LoadedConfig
    from tidemill.config.pins import SinkPin
    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import Registry


@dataclass(frozen=True)
class Side:
    """A place in one state, and the run that it is of, if it is a run's own."""

    place: str
    view: View
    manifest: Manifest | None = None


@dataclass(frozen=True)
class Sides:
    """What is compared of one output."""

    output: str
    pin: SinkPin
    here: Side
    there: Side
    span: tuple[int, int] | None
    is_production: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideFinder:
    """Opens both sides of the outputs of a run."""

    loaded: LoadedConfig
    registry: Registry
    manifest: Manifest

    def find(self, other: str | None, outputs: Sequence[str]) -> Iterator[Sides]:
        """Both sides of each output; ``other`` is a table or a run, None is production."""
        run = self.run_of(self.manifest)
        pins = self.manifest.outputs.sinks
        for name in outputs:
            if name not in pins:
                raise PlanError(
                    f"the run {self.manifest.run} has no output {name!r}",
                    fix=nearest(name, pins),
                    output=name,
                )
        theirs = None if other is None else self._find_run(other)
        names = list(outputs) or self._readable()
        if other is not None and theirs is None and len(names) > 1:
            raise PlanError(
                f"the run {self.manifest.run} has {len(names)} outputs, and --with names one table",
                fix="choose one with --output: " + ", ".join(names),
            )
        for name in names:
            pin = pins[name]
            sink = SINKS.find(pin.kind).open(run, name, pin)
            here = Side(pin.place, self._view_here(sink, pin), self.manifest)
            there = self._there(run, name, pin, other, theirs)
            span, notes = self._span(theirs)
            yield Sides(name, pin, here, there, span, other is None, notes)

    def run_of(self, manifest: Manifest) -> SinkRun:
        """What sinks of the run are opened with."""
        folder = RunFolder.of(self.loaded.home, manifest.run)
        return SinkRun(self.loaded, open_catalog(self.loaded), manifest, folder.path)

    def _readable(self) -> list[str]:
        """All outputs that can be read back; one of them at least."""
        pins = self.manifest.outputs.sinks
        found = [name for name, pin in pins.items() if SINKS.find(pin.kind).is_readable]
        if not found:
            first = next(iter(pins.values()))
            raise SinkError(
                f"the rows of {first.place} are not read back, so they cannot be compared",
                fix="compare what its consumers have written",
            )
        return found

    def _find_run(self, name: str) -> Manifest | None:
        """The manifest of the run that is meant; None: a table is."""
        for record in self.registry.runs():
            if name in (record.run, record.name):
                return RunFolder.of(self.loaded.home, record.run).read_manifest()
        if "." in name and all(part.strip() for part in name.split(".")):
            return None
        known = [each.run for each in self.registry.runs()[-8:]]
        raise RunError(
            f"there is no run or table {name!r}",
            fix=f"{nearest(name, known)}; a table is named with its namespace: marts.{name}",
        )

    def _view_here(self, sink: Sink, pin: SinkPin) -> View:
        view = sink.view()
        if view is None:
            raise SinkError(
                f"the run's table {pin.place} is gone",
                where=f"run {self.manifest.run}",
                fix=f"start the backfill again: 'tidemill backfill {self.manifest.pipeline}'",
            )
        return view

    def _there(
        self, run: SinkRun, name: str, pin: SinkPin, other: str | None, theirs: Manifest | None
    ) -> Side:
        if theirs is not None:
            return self._of_run(name, pin, theirs)
        if other is not None:
            return self._table(run, pin, other)
        found = replace(self.production(name), time=pin.time)
        if found.place == pin.place:
            raise PlanError(
                f"the run {self.manifest.run} writes production's own table {pin.place}",
                where=f"output {name}",
                fix="name what it is compared with: --with TABLE, or --with RUN",
            )
        view = SINKS.find(found.kind).open(run, name, found).view()
        if view is None:
            raise SinkError(
                f"production's table {found.place} is not there: there is nothing to compare with",
                where=f"output {name}",
                fix="publish the run, which makes the table; or name another with --with",
            )
        return Side(found.place, view)

    def production(self, name: str) -> SinkPin:
        """The place that the YAML names for an output."""
        config = self.loaded.config.pipelines.get(self.manifest.pipeline)
        section = None if config is None else config.sinks.get(name)
        if section is None:
            raise ConfigError(
                f"the YAML names no sink for the output {name!r} of {self.manifest.pipeline!r} any "
                "more, so production's table is not known",
                where=str(self.loaded.path),
                fix="name the table: --with TABLE",
            )
        return section.pin(self.manifest.outputs.sinks[name].schema, section.target)

    def _of_run(self, name: str, pin: SinkPin, theirs: Manifest) -> Side:
        pins = theirs.outputs.sinks
        chosen = name if name in pins else next(iter(pins)) if len(pins) == 1 else None
        if chosen is None:
            raise PlanError(
                f"the run {theirs.run} has no output {name!r}", fix=nearest(name, pins), output=name
            )
        found = replace(pins[chosen], time=pin.time)
        view = SINKS.find(found.kind).open(self.run_of(theirs), chosen, found).view()
        if view is None:
            raise SinkError(
                f"the table {pins[chosen].place} is gone",
                where=f"run {theirs.run}",
                fix="compare with another run or table",
            )
        return Side(pins[chosen].place, view, theirs)

    def _table(self, run: SinkRun, pin: SinkPin, table: str) -> Side:
        from tidemill.connectors.sinks.iceberg.section import table_pin
        from tidemill.connectors.sinks.iceberg.table import IcebergTable

        view = IcebergTable(run, table_pin(table, pin.schema, pin.time, pin.key)).view()
        if view is None:
            raise SinkError(
                f"the table {table} does not exist",
                fix="check the name; 'tidemill show TABLE' shows a table",
            )
        return Side(table, view)

    def _span(self, theirs: Manifest | None) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
        """The range of the output, cut to that of the other run; None: all rows."""
        ranges = [m.times.output for m in (self.manifest, theirs) if m is not None]
        low = max(each[0] for each in ranges)
        high = min(each[1] for each in ranges)
        if low >= high:
            raise PlanError(
                "the two runs have no time in common",
                fix="compare runs whose ranges overlap",
            )
        ends = [m for m in (self.manifest, theirs) if m is not None and m.times.ends]
        if not ends:
            return ((low, FOREVER_MICROS) if low > 0 else None), ()
        if (low, high) == self.manifest.times.output:
            return (low, high), ()
        told = TimeRange(from_micros(low), from_micros(high))
        return (low, high), (f"only the range that both runs have is compared: {told}",)


def state_note(registry: Registry, manifest: Manifest) -> tuple[str, ...]:
    """That the run is not finished, so that its rows are not all there."""
    record = registry.get(manifest.run)
    if record.state == "finished" or not manifest.times.ends:
        return ()
    return (f"the run is {record.state}, not finished: rows of it are still missing",)

"""Open the instances of a pipeline: their table as it is now, and what of it can be used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.connectors.tables.contract import pin_section, read_pinned
from tidemill.connectors.tables.iceberg import IcebergTable
from tidemill.errors import ConfigError, SourceError, nearest
from tidemill.iceberg.catalog import find_table
from tidemill.instances import Instances
from tidemill.planning.instances.book import Book, read_book
from tidemill.planning.manifest import CatchUp, InstancesPin
from tidemill.types import micros_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.instances import InstancesConfig
    from tidemill.config.loader import LoadedConfig

TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class OpenInstances:
    """The instances of a pipeline as they are now. The pin's ``ids`` are those of all of them."""

    pin: InstancesPin
    book: Book
    schema: pa.Schema

    def bound(self, run: str | None = None) -> Instances:
        """What the pipeline's code gets; without the URI of a run's folder only to be analysed."""
        return bound(self.pin, self.schema, run)


def bound(pin: InstancesPin, schema: pa.Schema, run: str | None = None) -> Instances:
    """What the pipeline's code gets; without the URI of a run's folder only to be analysed."""
    return Instances(pin.argument, schema, pin.id, pin.start, pin.end, run)


def section_of(loaded: LoadedConfig, pipeline: str) -> InstancesConfig:
    """The section ``instances:`` of a pipeline, which must have one."""
    found = loaded.config.pipelines[pipeline].instances
    if found is None:
        raise ConfigError(
            f"the pipeline {pipeline!r} has no instances",
            where=f"{loaded.path} (pipelines.{pipeline})",
            fix="add instances: {table: …, id: …, from: …, to: …}, and an argument annotated with "
            "tidemill.Instances",
        )
    return found


def open_instances(
    loaded: LoadedConfig, pipeline: str, catalog: Catalog, argument: str = "instances"
) -> OpenInstances:
    """Fix the table as it is now, and read it."""
    section, where = section_of(loaded, pipeline), f"pipeline {pipeline} (instances)"
    if find_table(catalog, section.table) is None:
        raise SourceError(
            f"the table {section.table!r} does not exist",
            where=where,
            fix=f"'tidemill instances add {pipeline} --id … --from … --to … --set NAME=VALUE' "
            "makes it with its first instance",
        )
    table = IcebergTable(type="iceberg", table=section.table)
    pin, rows = pin_section(table, f"of {where}", loaded.base, catalog)
    rows = with_moments(rows, (section.from_, section.to), where)
    if section.id not in rows.column_names:
        raise _missing(section.id, rows, where)
    made = InstancesPin(
        argument=argument,
        table=pin,
        id=section.id,
        start=section.from_,
        end=section.to,
        columns={each.name: str(each.type) for each in rows.schema},
        catch_up=CatchUp(micros_of(section.gather), section.rate),
    )
    book = read_book(rows, made)
    ids = tuple(str(each.id) for each in book.valid)
    return OpenInstances(replace(made, ids=ids), book, rows.schema)


def read_instances(pin: InstancesPin, catalog: Catalog) -> Book:
    """The book of the pinned state of a table."""
    where = f"instances {pin.argument}"
    rows = read_pinned(pin.table, where, catalog)
    return read_book(with_moments(rows, (pin.start, pin.end), where), pin)


def rows_of(book: Book, ids: Collection[str]) -> pa.Table:
    """The rows of some instances, in the order of their ids, as a version of a run has them."""
    wanted = [at for at, each in enumerate(book.valid) if str(each.id) in ids]
    return book.rows.take(pa.array(wanted, pa.int64())).combine_chunks()


def with_moments(rows: pa.Table, names: tuple[str, str], where: str) -> pa.Table:
    """The rows with their periods as instants: a time without a zone, or a date, is in UTC."""
    for name in names:
        if name not in rows.column_names:
            raise _missing(name, rows, where)
        times = rows.column(name)
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("us"))
        if not pa.types.is_timestamp(times.type):
            raise SourceError(
                f"the column {name!r} is {times.type}, not a timestamp or a date",
                where=where,
                fix="name a column of times in from: and to:",
            )
        rows = rows.set_column(rows.column_names.index(name), name, times.cast(TIME))
    return rows


def _missing(name: str, rows: pa.Table, where: str) -> SourceError:
    fix = nearest(name, rows.column_names)
    return SourceError(f"the table has no column {name!r}", where=where, fix=fix)

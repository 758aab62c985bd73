"""Add an instance: one row at the end of the table, of the types that the table has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import ConfigError, PlanError, SinkError, nearest
from tidemill.iceberg.catalog import find_table
from tidemill.iceberg.transaction import SteadyTransaction, attempts, try_commit
from tidemill.planning.code.params import Written, kind_of, read_value, write
from tidemill.types import TimeRange

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.config.instances import InstancesConfig

TIME = pa.timestamp("us", "UTC")
_TRIES = 10
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
          "date": pa.date32(), "datetime": TIME}  # fmt: skip
"""The types of a new table's columns, by those of the values."""


@dataclass(frozen=True)
class NewInstance:
    """What somebody gives: texts, which get the types of the table's columns."""

    id: str
    period: TimeRange
    params: Mapping[str, str]


@dataclass(frozen=True)
class Added:
    """An instance that was added. ``unset`` are parameters that were not given: they are null."""

    row: Mapping[str, Any]
    table: str
    columns: Mapping[str, str]
    is_new: bool  # whether the table was made for it
    unset: tuple[str, ...]


def add_instance(catalog: Catalog, section: InstancesConfig, new: NewInstance) -> Added:
    """Append the row, if no row has the id. A table that is missing is made.

    Several processes may add at once: each commit is made against the rows that were looked at.
    """
    table = find_table(catalog, section.table)
    is_new = table is None
    if table is None:
        schema = _new_schema(section, new)
        table = ensure_table(catalog, section.table, schema, None, "none")
    schema = table.schema().as_arrow()
    row = _row(section, schema, new)
    _append(table, section, pa.Table.from_pylist([row], schema))
    unset = tuple(name for name, value in row.items() if value is None)
    columns = {each.name: str(each.type) for each in schema}
    return Added(row, section.table, columns, is_new, unset)


def _new_schema(section: InstancesConfig, new: NewInstance) -> pa.Schema:
    """The columns of a new table: the id is a text, a parameter has the type of its value."""
    own = [(section.id, pa.string()), (section.from_, TIME), (section.to, TIME)]
    params = [
        (name, _TYPES[kind_of(read_value(Written(text), None))])
        for name, text in new.params.items()
        if name not in (section.id, section.from_, section.to)
    ]
    return pa.schema([*own, *params])


def _row(section: InstancesConfig, schema: pa.Schema, new: NewInstance) -> dict[str, Any]:
    own = (section.id, section.from_, section.to)
    known = [name for name in schema.names if name not in own]
    for name in new.params:
        if name in own:
            raise ConfigError(f"{name!r} is no parameter", fix="give --id, --from and --to instead")
        if name not in known:
            raise ConfigError(
                f"the table {section.table!r} has no column {name!r}", fix=nearest(name, known)
            )
    missing = [name for name in own if name not in schema.names]
    if missing:
        fix = nearest(missing[0], schema.names)
        raise ConfigError(f"the table {section.table!r} has no column {missing[0]!r}", fix=fix)
    given = {section.id: new.id, **new.params}
    found = {name: _value(schema.field(name), given.get(name)) for name in (section.id, *known)}
    times = {section.from_: new.period.start, section.to: new.period.end}
    row = {**found, **{name: _time(schema.field(name), at) for name, at in times.items()}}
    return {name: row[name] for name in schema.names}


def _time(field: pa.Field, moment: datetime) -> Any:
    """A moment in the type of a column: without a zone it is in UTC."""
    if pa.types.is_timestamp(field.type):
        return moment if field.type.tz else moment.replace(tzinfo=None)
    return moment.date()


def _value(field: pa.Field, text: str | None) -> Any:
    """A text in the type of a column; what does not fit is an error that says how to write it."""
    if text is None or text == "null":
        return None
    kind = _kind(field)
    try:
        value = read_value(Written(text), kind)
        pa.scalar(value, field.type)
    except ConfigError as error:
        raise ConfigError(f"{field.name}: {error.message}", fix=error.fix) from None
    except (pa.ArrowInvalid, OverflowError) as error:
        told = f"{field.name}: {write(value)} is not a {field.type}: {error}"
        raise ConfigError(told, fix="give a value of the column's type") from None
    return value.replace(tzinfo=None) if field.type == pa.timestamp("us") else value


def _kind(field: pa.Field) -> str:
    tests = {
        "str": (pa.types.is_string, pa.types.is_large_string),
        "int": (pa.types.is_integer,),
        "float": (pa.types.is_floating,),
        "bool": (pa.types.is_boolean,),
        "Decimal": (pa.types.is_decimal,),
        "date": (pa.types.is_date,),
        "datetime": (pa.types.is_timestamp,),
    }
    for name, each in tests.items():
        if any(test(field.type) for test in each):
            return name
    raise ConfigError(
        f"{field.name} is a {field.type}, which cannot be written on a command line",
        fix="append the row to the table with Spark or pyiceberg",
    )


def _append(table: Table, section: InstancesConfig, row: pa.Table) -> None:
    for _ in attempts(_TRIES):
        table.refresh()
        there = _rows_with(table, section.id, row)
        if there.num_rows:
            raise _in_use(section, row)
        transaction = SteadyTransaction(table)
        transaction.append(row)
        landed = try_commit(transaction)
        if landed is None:  # nobody knows: only our row is equal to it
            table.refresh()
            landed = _rows_with(table, section.id, row).to_pylist() == row.to_pylist()
        if landed:
            return
    raise SinkError(
        "the instance could not be added: other writers were faster each time",
        where=f"table {section.table}",
        fix="give the command again",
    )


def _rows_with(table: Table, column: str, row: pa.Table) -> pa.Table:
    from pyiceberg.expressions import EqualTo

    wanted = EqualTo(term=column, value=row.column(column)[0].as_py())
    return table.scan(row_filter=wanted).to_arrow()


def _in_use(section: InstancesConfig, row: pa.Table) -> PlanError:
    used = row.column(section.id)[0].as_py()
    return PlanError(
        f"the id {str(used)!r} is in use, and an instance never changes",
        where=f"table {section.table}",
        fix="give another --id; 'tidemill instances withdraw' ends the old one",
    )

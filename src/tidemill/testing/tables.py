"""Reference tables and instances made in memory, of plain Python rows, as the YAML names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.records.ddl import parse_columns
from tidemill.testing.logs import as_table
from tidemill.types import parse_instant

_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class MemoryTable:
    """The rows of a reference table. :func:`make_table` makes one from plain rows."""

    rows: pa.Table
    key: tuple[str, ...] = ()
    valid_from: str | None = None

    def section(self, name: str, folder: Path) -> dict[str, Any]:
        """Write the rows below the project's folder; the table's section of the YAML."""
        place = Path("tables") / name
        (folder / place).mkdir(parents=True)
        pq.write_table(self.rows, folder / place / "rows.parquet")
        found: dict[str, Any] = {"type": "parquet", "path": str(place), "key": list(self.key)}
        return found if self.valid_from is None else {**found, "valid_from": self.valid_from}


def make_table(
    rows: Any,
    *,
    columns: Sequence[str] | None = None,
    schema: str | pa.Schema | None = None,
    key: str | Sequence[str] = (),
    valid_from: str | None = None,
) -> MemoryTable:
    """A reference table of plain rows: dicts, or tuples with ``columns``; DataFrames work, too.

    ``key`` and ``valid_from`` are those of ``tables:`` in the YAML: the columns in which no two
    rows are equal, and the column that says from when on a row holds, for ``tidemill.as_of``. Its
    times are datetimes with a zone, or text such as ``"2026-01-01T00:10Z"``. ``schema``: as in
    :func:`make_log`; a table without rows needs it.
    """
    typed = parse_columns(schema) if isinstance(schema, str) else schema or pa.schema([])
    keys = (key,) if isinstance(key, str) else tuple(key)
    return MemoryTable(as_table(rows, columns, typed, valid_from), keys, valid_from)


def write_tables(tables: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The section ``tables:`` of a project in this folder; plain rows become tables."""
    made = {
        name: each if isinstance(each, MemoryTable) else make_table(each)
        for name, each in tables.items()
    }
    return {name: table.section(name, folder) for name, table in made.items()}


@dataclass(frozen=True)
class MemoryInstances:
    """The rows of the table of a pipeline's instances. :func:`make_instances` makes one."""

    rows: pa.Table
    id: str
    start: str
    end: str
    table: str = "ops.instances"

    def section(self) -> dict[str, Any]:
        """The section ``instances:`` of the pipeline in the YAML."""
        return {"table": self.table, "id": self.id, "from": self.start, "to": self.end}


def make_instances(
    rows: Sequence[Mapping[str, Any]],
    *,
    id: str,  # noqa: A002
    start: str,
    end: str,
    schema: str | pa.Schema | None = None,
) -> MemoryInstances:
    """Instances of plain rows: ``Instances`` in the pipeline's code.

    ``id``, ``start`` and ``end`` name the columns that ``id:``, ``from:`` and ``to:`` name in the
    YAML; the other columns are parameters.

    Periods are datetimes with a zone, or text such as ``"2026-01-01T00:10Z"``. ``schema``: the
    types of columns, as in :func:`make_log`; a table without rows needs it.
    """
    typed = parse_columns(schema) if isinstance(schema, str) else schema or pa.schema([])
    times = pa.schema([(start, _TIME), (end, _TIME)])
    known = pa.unify_schemas([pa.schema([f for f in typed if f.name not in times.names]), times])
    plain = [{**row, start: _moment(row[start]), end: _moment(row[end])} for row in rows]
    return MemoryInstances(as_table(plain, None, known, None), id, start, end)


def _moment(value: Any) -> Any:
    return parse_instant(value) if isinstance(value, str) else value

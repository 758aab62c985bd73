"""A PostgreSQL sink on its own: batches without Spark."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa

from tests.manifests import make_manifest
from tidemill.connectors.sinks.contract import SinkRun
from tidemill.connectors.sinks.postgres.section import PostgresSink
from tidemill.connectors.sinks.postgres.table import PostgresTable
from tidemill.connectors.sinks.stamp import BatchStamp
from tidemill.connectors.sinks.writing import BatchWriter

SHAPE = {"id": "long", "at": "timestamp", "name": "string"}
SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])


@dataclass(frozen=True)
class Stage:
    """A server, and the YAML of a sink on it."""

    server: dict[str, Any]
    schema: str

    def section(self, **more: Any) -> PostgresSink:
        given = {"type": "postgres", **self.server, "table": f"{self.schema}.plays", **more}
        return PostgresSink(**given)

    def sink(
        self, *, run: str = "r1", shape: dict[str, Any] | None = None, **more: Any
    ) -> PostgresTable:
        """A sink that nobody has prepared yet."""
        section = self.section(**more)
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (shape or SHAPE).items()
        ]
        pin = section.pin(json.dumps({"type": "struct", "fields": fields}), section.target)
        pipelines = {"p": SimpleNamespace(sinks={"output": section})}
        loaded: Any = SimpleNamespace(config=SimpleNamespace(pipelines=pipelines))
        manifest = make_manifest(run=run, output=(0, 4 * 10**15))
        found = PostgresSink.open(SinkRun(loaded, None, manifest, Path()), "output", pin)  # type: ignore[arg-type]
        assert isinstance(found, PostgresTable)
        return found

    def ready(self, **more: Any) -> PostgresTable:
        sink = self.sink(**more)
        told = sink.stamps().get(more.get("run", "r1"))
        sink.prepare(None if told is None else told.stamp)
        return sink

    def query(self, text: str) -> list[tuple[Any, ...]]:
        keys = {**self.server, "dbname": self.server["database"]}
        del keys["database"]
        with psycopg.connect(**keys, autocommit=True) as connection:
            found = connection.execute(text.replace("$S", self.schema))  # type: ignore[arg-type]
            return found.fetchall() if found.description else []

    def rows(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        return sorted(self.query(f"SELECT {columns} FROM $S.plays"))

    def staged(self) -> int:
        (found,) = self.query(
            "SELECT count(*) FROM pg_tables WHERE schemaname = '$S' "
            "AND tablename LIKE 'tidemill_stage_%'"
        )
        return int(found[0])


def table(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows of the output: id, µs since 1970, name."""
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def write(sink: PostgresTable, *tasks: pa.Table) -> list[bytes]:
    """What executors do of a batch: each table is the rows of one task."""
    return [told for rows in tasks for told in _task(sink, rows.to_batches())]


def _task(sink: PostgresTable, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    results = BatchWriter({"output": sink.destination()})(iter(batches))
    return [row["file"] for batch in results for row in batch.to_pylist() if row["file"]]


def stamp(batch: int, run: str = "r1", **more: Any) -> BatchStamp:
    made = BatchStamp(run, batch, {"a": batch * 10}, batch, before={"a": batch * 10 - 10})
    return replace(made, **more)

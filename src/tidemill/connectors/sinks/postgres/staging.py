"""A task's rows on their way into PostgreSQL: copied into a staging table of the task's own.

The task makes, fills and commits the table in one transaction, so an attempt that dies leaves
nothing. A table that nobody merged, because Spark took another attempt, is dropped by the next
commit or start.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import Connection, Error, connect, errors, sql

from tidemill.connectors.sinks.contract import ROW, Opened, result
from tidemill.connectors.sinks.postgres.columns import as_csv, defined, names_of
from tidemill.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Stage:
    """What a task tells the driver: the rows that it has staged."""

    name: str
    rows: int


@dataclass(frozen=True)
class PostgresTarget:
    """A table as an executor needs it."""

    place: str
    schema: str
    prefix: str  # of the names of the run's staging tables
    columns: Mapping[str, str]  # name and type of PostgreSQL
    time: str | None
    range: tuple[int, int] | None  # only rows with time in it are kept
    client: Mapping[str, str] = field(repr=False)  # holds the password

    def open(self, name: str) -> Opened:
        """Begin without a connection; the first rows open it."""
        return _OpenStage(self, name)


class _OpenStage:
    """Rows of one task attempt on their way into its staging table."""

    def __init__(self, target: PostgresTarget, name: str) -> None:
        self._target, self._name = target, name
        self._stage = f"{target.prefix}{uuid.uuid4().hex[:16]}"
        self._table = sql.Identifier(target.schema, self._stage)
        self._connection: Connection[Any] | None = None
        self._rows = 0

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Copy the rows; nobody sees them before the task is done."""
        rows = rows.select(list(self._target.columns)) if ROW in rows.schema.names else rows
        text = as_csv(rows)
        with self._worded():
            connection = self._connection or self._begin()
            into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")
            names = names_of(rows.schema.names)
            with connection.cursor().copy(into.format(self._table, names)) as copy:
                copy.write(text)
        self._rows += rows.num_rows
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Commit the staging table, so that the driver finds it."""
        if self._connection is None:
            return
        with self._worded():
            self._connection.commit()
            self._connection.close()
        self._connection = None
        told = json.dumps(asdict(Stage(self._stage, self._rows))).encode()
        yield result(self._name, told, self._rows, 0)

    def _begin(self) -> Connection[Any]:
        self._connection = connect(**self._target.client)  # type: ignore[arg-type]
        make = sql.SQL("CREATE UNLOGGED TABLE {} ({})")
        self._connection.execute(make.format(self._table, defined(self._target.columns)))
        return self._connection

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """Put errors into our words, and close the connection: a failed transaction is lost."""
        try:
            yield
        except Error as error:
            if self._connection is not None:
                self._connection.close()
            raise in_our_words(error, self._target.place, self._target.schema) from None


def in_our_words(error: Error, place: str, schema: str, batch: int | None = None) -> SinkError:
    """What PostgreSQL said, without the statement, and what to do next."""
    said = error.diag.message_primary or str(error).strip().splitlines()[-1]
    column = f" (column {error.diag.column_name})" if error.diag.column_name else ""
    detail = f": {error.diag.message_detail}" if error.diag.message_detail else ""
    what = "the rows" if batch is None else f"batch {batch}"
    if isinstance(error, errors.InsufficientPrivilege):
        fix = (
            f"let the user create and write tables there: GRANT USAGE, CREATE ON SCHEMA {schema}, "
            f"and SELECT, INSERT, UPDATE on the table and on {schema}.tidemill_stamps"
        )
        return SinkError(f"PostgreSQL refuses the user: {said}", where=place, fix=fix)
    if isinstance(error, errors.OperationalError) and error.sqlstate is None:
        return SinkError(
            f"PostgreSQL cannot be reached: {said}",
            where=place,
            fix="check host, port, database, user and password of the sink, and that the server "
            "runs; then 'tidemill resume'",
        )
    fix = "check the server, then 'tidemill resume'"
    if isinstance(error, errors.DataError | errors.IntegrityError):
        fix = "change the table, cast or filter in the pipeline, or write elsewhere with --into"
    return SinkError(f"PostgreSQL cannot take {what}{column}: {said}{detail}", where=place, fix=fix)

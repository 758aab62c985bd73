"""A task's rows on their way into PostgreSQL: copied into a staging table of the task's own.

The table is made, filled and committed by the task in one transaction: an attempt that dies leaves
nothing. What an attempt leaves that was finished in vain, the next commit or start drops.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import ROW, Opened, result
from tidemill.connectors.sinks.postgres.columns import as_csv, names_of
from tidemill.errors import ConfigError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import Connection, Error


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
        """Connects with the first row, not before."""
        return _OpenStage(self, name)


class _OpenStage:
    """Rows of one task attempt on their way into its staging table."""

    def __init__(self, target: PostgresTarget, name: str) -> None:
        self._target, self._name = target, name
        self._stage = f"{target.prefix}{uuid.uuid4().hex[:16]}"
        self._connection: Connection[Any] | None = None
        self._rows = 0

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Copy the rows; nobody sees them before the task is done."""
        rows = rows.select(list(self._target.columns)) if ROW in rows.schema.names else rows
        text = as_csv(rows)
        with self._worded():
            connection = self._connection or self._begin()
            with connection.cursor().copy(self._copy(rows.schema.names)) as copy:
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
        from psycopg import sql

        target = self._target
        self._connection = connect(target.client)
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in target.columns.items()
        )
        make = sql.SQL("CREATE UNLOGGED TABLE {} ({})")
        self._connection.execute(make.format(self._table(), columns))
        return self._connection

    def _table(self) -> Any:
        from psycopg import sql

        return sql.Identifier(self._target.schema, self._stage)

    def _copy(self, columns: list[str]) -> Any:
        from psycopg import sql

        text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)")
        return text.format(self._table(), names_of(columns))

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """Errors in our words; a transaction that failed is given up at once."""
        from psycopg import Error

        try:
            yield
        except Error as error:
            if self._connection is not None:
                self._connection.close()
            raise in_our_words(error, self._target.place, self._target.schema) from None


def require_client() -> None:
    """The extra is installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise ConfigError(
            "writing to PostgreSQL needs psycopg, which is not installed",
            fix="pip install 'tidemill[postgres]'",
        ) from None


def connect(client: Mapping[str, str]) -> Connection[Any]:
    """A connection of its own; raises psycopg's errors."""
    from psycopg import connect

    return connect(**client)  # type: ignore[arg-type]


def in_our_words(error: Error, place: str, schema: str, batch: int | None = None) -> SinkError:
    """What PostgreSQL said, without the statement, and what to do next."""
    from psycopg import errors

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

"""A table of PostgreSQL as a sink: what tasks have staged is merged once, with the batch's stamp.

The driver merges the staging tables of exactly the reported tasks into the table, writes the stamp
into ``tidemill_stamps`` in the same schema, and drops the staging tables, all in one transaction.
Whatever dies in between leaves the table as it was before the batch, or with all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from psycopg import Connection, Error, OperationalError, connect, sql

from tidemill.connectors.sinks.contract import LastCommit, Sink, SinkRun, View, arrow_schema
from tidemill.connectors.sinks.postgres.columns import (
    Column,
    column_types,
    defined,
    misfits,
    names_of,
)
from tidemill.connectors.sinks.postgres.staging import PostgresTarget, Stage, in_our_words
from tidemill.connectors.sinks.stamp import BatchStamp, digest, is_repeat
from tidemill.errors import SinkError
from tidemill.types import from_micros

if TYPE_CHECKING:
    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.postgres.section import PostgresSink

_STAMPS = "tidemill_stamps"
_FETCHED = 20_000
_TRIES = 6
"""Attempts of a commit while the server goes away, or others hold what it needs."""


class PostgresTable(Sink):
    """A table of a run, on the driver. Every method opens a connection and closes it again."""

    def __init__(self, run: SinkRun, pin: SinkPin, section: PostgresSink) -> None:
        """Nothing is opened yet."""
        self.run, self.pin, self.place = run, pin, pin.place
        self._schema, self._table = pin.own["table"].split(".")
        self._upserts = pin.own["mode"] == "upsert"
        self._client: dict[str, Any] = section.connection()
        self._target: PostgresTarget | None = None
        told = hashlib.sha256(f"{run.run}\n{pin.own['table']}".encode()).hexdigest()
        self._prefix = f"tidemill_stage_{told[:12]}_"

    def check(self) -> None:
        """Connect once: the server must answer and let the user in."""
        with self._connected():
            pass

    def prepare(self, at_start: BatchStamp | None) -> None:
        """Make schema, table and stamps; check the columns; drop what dead attempts left."""
        columns = column_types(arrow_schema(self.pin), self.place)
        with self._connected() as connection, connection.transaction():
            self._lock(connection, _STAMPS)
            self._make(connection, columns)
            self._check_columns(connection, columns)
            if self._upserts:
                self._check_unique(connection)
            self._drop_stages(connection)
        self.at_start = at_start
        kept = self.run.manifest.kept
        self._target = PostgresTarget(
            self.place, self._schema, self._prefix, columns, self.pin.time, kept, self._client
        )

    def destination(self, batch: int = -1) -> PostgresTarget:
        """The same for all batches: each task attempt has a staging table of its own."""
        assert self._target is not None, "prepare comes first"
        return self._target

    def commit(self, stamp: BatchStamp, written: Sequence[bytes]) -> bool:
        """Merge, stamp and clear away in one transaction; an unknown result is looked up."""
        stages = [Stage(**json.loads(each)) for each in written]
        if not stages:
            return False
        for attempt in range(_TRIES):
            try:
                return self._commit_once(stamp, stages)
            except OperationalError as error:
                if attempt == _TRIES - 1:
                    raise in_our_words(error, self.place, self._schema, stamp.batch) from None
                time.sleep(0.1 * 2**attempt)
            except Error as error:
                raise in_our_words(error, self.place, self._schema, stamp.batch) from None
        raise AssertionError  # the last attempt returns or raises

    def _commit_once(self, stamp: BatchStamp, stages: Sequence[Stage]) -> bool:
        """One attempt. It raises psycopg's errors: the caller decides whether to try again."""
        told = {"stages": digest(stage.name for stage in stages)}
        with connect(**self._client) as connection, connection.transaction():
            self._lock(connection, stamp.run)
            found = self._read_stamp(connection, stamp.run)
            last = None if found is None else BatchStamp.from_json(stamp.run, found)
            if is_repeat(last, stamp, self.at_start, self.place):
                self._drop_stages(connection)
                return bool(json.loads(found or "{}").get("stages") == told["stages"])
            self._require_whole(connection, stages)
            self._merge(connection, stages)
            self._write_stamp(connection, stamp.run, stamp.to_json(told))
            self._drop_stages(connection)
        return True

    def discard(self, written: Sequence[bytes]) -> None:
        """Drop the staging tables."""
        if written:
            with self._connected() as connection, connection.transaction():
                self._drop_stages(connection)

    def stamps(self) -> Mapping[str, LastCommit]:
        """Read the table of stamps, if it is there."""
        with self._connected() as connection:
            if not self._exists(connection, _STAMPS):
                return {}
            query = self._sql(
                "SELECT run, stamp, (extract(epoch FROM committed) * 1000)::bigint FROM {stamps} "
                "WHERE target = %s"
            )
            rows = connection.execute(query, [self._table]).fetchall()
        return {run: LastCommit(BatchStamp.from_json(run, text), at) for run, text, at in rows}

    def rows_in(self, span: tuple[int, int]) -> int:
        """Count the rows, by their time if the output has one."""
        with self._connected() as connection:
            if not self._exists(connection, self._table):
                return 0
            if self.pin.time is not None and self.pin.time not in self._columns(connection):
                return 0  # the output does not fit the table: the run says so
            within, values = self._within(span)
            query = self._sql("SELECT count(*) FROM {table}{within}", within=within)
            return int(self._one(connection, query, values))

    def scan(
        self, columns: Sequence[str], span: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """By a cursor of the server's, in the output's types; nested values as their text."""
        schema, kept = _read_back(arrow_schema(self.pin), columns), []
        for name, kind in column_types(schema, self.place).items():
            kept.append(sql.SQL("{}::{}").format(sql.Identifier(name), sql.SQL(kind)))
        within, values = self._within(span)
        query = self._sql(
            "SELECT {columns} FROM {table}{within}", columns=sql.SQL(", ").join(kept), within=within
        )
        with self._connected() as connection, connection.cursor("tidemill") as cursor:
            cursor.execute(query, values)
            while rows := cursor.fetchmany(_FETCHED):
                found = zip(zip(*rows, strict=True), schema.types, strict=True)
                arrays = [pa.array(list(each), kind) for each, kind in found]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def view(self) -> View | None:
        """The output's columns that the table has; every reading is a transaction of its own."""
        with self._connected() as connection:
            if not self._exists(connection, self._table):
                return None
            known = self._columns(connection)
        schema = arrow_schema(self.pin)
        names = [name for name in schema.names if name in known]
        stamps = {run: last.stamp for run, last in self.stamps().items()}
        return View(_read_back(schema, names), self.scan, stamps=stamps)

    def is_there(self) -> bool:
        """Ask the server."""
        with self._connected() as connection:
            return self._exists(connection, self._table)

    def drop(self) -> None:
        """Drop the table, its stamps and its staging tables in one transaction."""
        with self._connected() as connection, connection.transaction():
            self._lock(connection, _STAMPS)
            self._drop_stages(connection)
            connection.execute(self._sql("DROP TABLE IF EXISTS {table}"))
            if self._exists(connection, _STAMPS):
                query = self._sql("DELETE FROM {stamps} WHERE target = %s")
                connection.execute(query, [self._table])

    def read(self) -> pa.Table:
        """The output's columns, in its types; documents, which nested columns became, as text."""
        schema = arrow_schema(self.pin)
        names = schema.names
        return pa.Table.from_batches(self.scan(names, None), _read_back(schema, names))

    def _within(self, span: tuple[int, int] | None) -> tuple[sql.Composed, list[Any]]:
        """The condition of rows with a time in the span, and its values."""
        if span is None or self.pin.time is None:
            return self._sql(""), []
        text = " WHERE {time} >= %s AND {time} < %s"
        at = sql.Identifier(self.pin.time)
        return self._sql(text, time=at), [from_micros(moment) for moment in span]

    # The parts of a transaction, in the order in which they run.

    def _lock(self, connection: Connection[Any], what: str) -> None:
        """Let one transaction run at a time, and let its commit wait until it is on the disk."""
        name = f"tidemill {self._schema}.{self._table} {what}"
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    def _make(self, connection: Connection[Any], columns: Mapping[str, str]) -> None:
        """Create the schema, the table of stamps and the table, if they are missing."""
        schema = sql.Identifier(self._schema).as_string()
        if not self._one(connection, "SELECT to_regnamespace(%s)::text", [schema]):
            connection.execute(self._sql("CREATE SCHEMA IF NOT EXISTS {schema}"))
        if not self._exists(connection, _STAMPS):
            connection.execute(
                self._sql(
                    "CREATE TABLE IF NOT EXISTS {stamps} (target text, run text, stamp text NOT "
                    "NULL, committed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (target, run))"
                )
            )
        if self._exists(connection, self._table):
            return
        key = sql.SQL(", PRIMARY KEY ({})").format(names_of(self.pin.key))
        parts = defined(columns) + key if self._upserts else defined(columns)
        connection.execute(self._sql("CREATE TABLE {table} ({parts})", parts=parts))

    def _check_columns(self, connection: Connection[Any], columns: Mapping[str, str]) -> None:
        """Raise SinkError before anything is computed if the output does not fit the table."""
        for name, wrong in misfits(columns, self._columns(connection)):
            raise SinkError(
                wrong,
                where=self.place,
                fix="change the table, cast in the pipeline, or write elsewhere with --into",
                column=name,
            )

    def _check_unique(self, connection: Connection[Any]) -> None:
        """Raise SinkError unless the key, by which rows are found, is unique in the table."""
        query = (
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON "
            "a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = "
            "to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL "
            "GROUP BY i.indexrelid"
        )
        name = self._in(self._table).as_string()
        unique = [set(found) for (found,) in connection.execute(query, [name])]
        if set(self.pin.key) not in unique:
            raise SinkError(
                f"the key ({', '.join(self.pin.key)}) is not unique in the table",
                where=self.place,
                fix=f"CREATE UNIQUE INDEX ON {name} ({names_of(self.pin.key).as_string()}); "
                "or mode: append",
            )

    def _read_stamp(self, connection: Connection[Any], run: str) -> str | None:
        query = self._sql("SELECT stamp FROM {stamps} WHERE target = %s AND run = %s")
        found = self._one(connection, query, [self._table, run])
        return None if found is None else str(found)

    def _require_whole(self, connection: Connection[Any], stages: Sequence[Stage]) -> None:
        """Count the staged rows: a crash of the server empties tables that are not in its log."""
        for stage in stages:
            rows = (
                self._one(connection, self._sql("SELECT count(*) FROM {t}", t=self._in(stage.name)))
                if self._exists(connection, stage.name)
                else 0
            )
            if rows != stage.rows:
                raise SinkError(
                    f"a task wrote {stage.rows:,} rows, {rows:,} of them are left: the server was "
                    "restarted, or somebody has deleted them",
                    where=self.place,
                    fix="'tidemill resume' runs the batch again",
                )

    def _merge(self, connection: Connection[Any], stages: Sequence[Stage]) -> None:
        target = self.destination()
        names = names_of(target.columns)
        parts = [
            sql.SQL("SELECT {} FROM {}").format(names, self._in(stage.name)) for stage in stages
        ]
        staged = sql.SQL("({}) AS staged").format(sql.SQL(" UNION ALL ").join(parts))
        if not self._upserts:
            append = "INSERT INTO {table} ({names}) SELECT {names} FROM {staged}"
            connection.execute(self._sql(append, names=names, staged=staged))
            return
        self._require_keys(connection, staged)
        upsert = self._sql(
            "INSERT INTO {table} AS old ({names}) SELECT DISTINCT ON ({key}) {names} FROM {staged} "
            "ORDER BY {order} ON CONFLICT ({key}) DO {action}",
            names=names,
            staged=staged,
            key=names_of(self.pin.key),
            order=self._newest_first(),
            action=self._on_conflict(list(target.columns)),
        )
        connection.execute(upsert)

    def _newest_first(self) -> sql.Composed:
        at = self._time_beside_key
        last = [] if at is None else [sql.SQL(", {} DESC").format(sql.Identifier(at))]
        return sql.Composed([names_of(self.pin.key), *last])

    def _on_conflict(self, columns: list[str]) -> sql.Composed:
        """The new row replaces the row that is there, unless that one has a later time."""
        rest, at = [name for name in columns if name not in self.pin.key], self._time_beside_key
        if not rest:
            return sql.Composed([sql.SQL("NOTHING")])
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in rest]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes))
        if at is None:
            return update
        older = " WHERE old.{at} IS NULL OR old.{at} <= EXCLUDED.{at}"
        return update + sql.SQL(older).format(at=sql.Identifier(at))

    @property
    def _time_beside_key(self) -> str | None:
        """The time by which the latest of several rows is found; None: a key has one row."""
        return None if self.pin.time in self.pin.key else self.pin.time

    def _require_keys(self, connection: Connection[Any], staged: sql.Composed) -> None:
        """Raise SinkError if a key is null, or if two rows of a key have the same time."""
        for column in self.pin.key:
            query = self._sql(
                "SELECT count(*) FROM {staged} WHERE {key} IS NULL",
                staged=staged,
                key=sql.Identifier(column),
            )
            nulls = self._one(connection, query)
            if nulls:
                raise SinkError(
                    f"the key {column!r} is null in {nulls:,} rows of the batch",
                    where=self.place,
                    fix="filter them in the pipeline, choose another key, or mode: append",
                    column=column,
                )
        at = self._time_beside_key
        columns = [*self.pin.key, *([at] if at is not None else [])]
        query = self._sql(
            "SELECT {columns}, count(*) FROM {staged} GROUP BY {columns} HAVING count(*) > 1 "
            "LIMIT 1",
            columns=names_of(columns), staged=staged,
        )  # fmt: skip
        double = connection.execute(query).fetchone()
        if double is not None:
            shown = ", ".join(f"{n}={v}" for n, v in zip(columns, double[:-1], strict=True))
            raise SinkError(
                f"{double[-1]} rows of the batch have {shown}: which of them the table keeps would "
                "be left to chance",
                where=self.place,
                fix="make the rows of a key one in the pipeline, or add a column to the key"
                + ("" if self.pin.time else ", or name the sink's time: the latest row is kept"),
            )

    def _write_stamp(self, connection: Connection[Any], run: str, text: str) -> None:
        query = self._sql(
            "INSERT INTO {stamps} (target, run, stamp) VALUES (%s, %s, %s) ON CONFLICT "
            "(target, run) DO UPDATE SET stamp = EXCLUDED.stamp, committed = now()"
        )
        connection.execute(query, [self._table, run, text])

    def _drop_stages(self, connection: Connection[Any]) -> None:
        """Drop all staging tables of this run and table: only one batch is ever under way."""
        query = (
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)"
        )
        for (name,) in connection.execute(query, [self._schema, self._prefix]).fetchall():
            connection.execute(self._sql("DROP TABLE IF EXISTS {stage}", stage=self._in(name)))

    # Small questions.

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """A connection; errors are put into our words."""
        try:
            with connect(**self._client) as connection:
                yield connection
        except Error as error:
            raise in_our_words(error, self.place, self._schema) from None

    def _exists(self, connection: Connection[Any], table: str) -> bool:
        query = "SELECT to_regclass(%s)::text"
        return self._one(connection, query, [self._in(table).as_string()]) is not None

    def _columns(self, connection: Connection[Any]) -> dict[str, Column]:
        query = (
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT (atthasdef OR "
            "attidentity <> '' OR attgenerated <> '') FROM pg_attribute WHERE attrelid = "
            "to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        found = connection.execute(query, [self._in(self._table).as_string()])
        return {name: Column(*told) for name, *told in found}

    @staticmethod
    def _one(connection: Connection[Any], query: Any, values: Sequence[Any] = ()) -> Any:
        found = connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    def _in(self, table: str) -> sql.Identifier:
        return sql.Identifier(self._schema, table)

    def _sql(self, text: Any, **parts: Any) -> sql.Composed:
        return sql.SQL(text).format(
            table=self._in(self._table),
            stamps=self._in(_STAMPS),
            schema=sql.Identifier(self._schema),
            **parts,
        )


def _read_back(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """These columns as they are read; nested ones are documents in the table, and text then."""
    fields = [schema.field(name) for name in columns]
    return pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_nested(f.type) else f.type) for f in fields]
    )

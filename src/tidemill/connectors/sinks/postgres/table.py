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

from tidemill.connectors.sinks.contract import LastCommit, Sink, SinkRun, arrow_schema
from tidemill.connectors.sinks.postgres.columns import (
    Column,
    column_type,
    fits,
    name_of,
    names_of,
    quoted,
)
from tidemill.connectors.sinks.postgres.staging import (
    PostgresTarget,
    Stage,
    connect,
    in_our_words,
    require_client,
)
from tidemill.connectors.sinks.stamp import BatchStamp, is_repeat
from tidemill.errors import SinkError
from tidemill.types import from_micros

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier

    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.postgres.section import PostgresSink

_STAMPS = "tidemill_stamps"
_TRIES = 6
"""Attempts of a commit while the server goes away, or others hold what it needs."""


class PostgresTable(Sink):
    """A table of a run, on the driver. Every method opens a connection and closes it again."""

    def __init__(self, run: SinkRun, pin: SinkPin, section: PostgresSink) -> None:
        """Nothing is opened yet."""
        require_client()
        self.run, self.pin, self.place = run, pin, pin.place
        self._schema, self._table = pin.own["table"].split(".")
        self._upserts = pin.own["mode"] == "upsert"
        self._client = section.connection()
        self._target: PostgresTarget | None = None
        told = hashlib.sha256(f"{run.run}\n{pin.own['table']}".encode()).hexdigest()
        self._prefix = f"tidemill_stage_{told[:12]}_"

    def check(self) -> None:
        """The server answers, and lets the user in."""
        with self._connected():
            pass

    def prepare(self, at_start: BatchStamp | None) -> None:
        """Make schema, table and stamps; check the columns; drop what dead attempts left."""
        schema = arrow_schema(self.pin)
        columns = {
            name: column_type(name, schema.field(name).type, self.place) for name in schema.names
        }
        with self._connected() as connection, connection.transaction():
            self._lock(connection, _STAMPS)
            self._make(connection, columns)
            self._check_columns(connection, columns)
            if self._upserts:
                self._check_unique(connection)
            self._drop_stages(connection)
        self.at_start = at_start
        kept = self.run.manifest.output
        self._target = PostgresTarget(
            self.place, self._schema, self._prefix, columns, self.pin.time, kept, self._client
        )

    def destination(self, batch: int = -1) -> PostgresTarget:
        """The same for all batches: each task attempt has a staging table of its own."""
        assert self._target is not None, "prepare comes first"
        return self._target

    def commit(self, stamp: BatchStamp, written: Sequence[bytes]) -> bool:
        """Merge, stamp and clear away in one transaction; an unknown result is looked up."""
        from psycopg import Error, OperationalError

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
        """Raises psycopg's errors: the caller decides whether to look again."""
        names = ",".join(sorted(stage.name for stage in stages))
        told = {"stages": hashlib.sha256(names.encode()).hexdigest()[:16]}
        with connect(self._client) as connection, connection.transaction():
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
        """From the table of stamps, if it is there."""
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
        """Counted, by the time if there is one."""
        with self._connected() as connection:
            if not self._exists(connection, self._table):
                return 0
            within: list[Any] = []
            query = self._sql("SELECT count(*) FROM {table}")
            if self.pin.time is not None:
                if self.pin.time not in self._columns(connection):
                    return 0  # the output does not fit the table: the run says so
                query += self._sql(
                    " WHERE {time} >= %s AND {time} < %s", time=name_of(self.pin.time)
                )
                within = [from_micros(moment) for moment in span]
            found = connection.execute(query, within).fetchone()
        return int(found[0]) if found else 0

    # The parts of a transaction, in the order in which they run.

    def _lock(self, connection: Connection[Any], what: str) -> None:
        """One at a time, until the transaction ends; and what it commits is on the disk."""
        name = f"tidemill {self._schema}.{self._table} {what}"
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    def _make(self, connection: Connection[Any], columns: Mapping[str, str]) -> None:
        """Schema, stamps and table, each if it is missing."""
        from psycopg import sql

        if not self._one(connection, "SELECT to_regnamespace(%s)::text", [quoted(self._schema)]):
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
        parts = [sql.SQL("{} {}").format(name_of(name), sql.SQL(columns[name])) for name in columns]
        if self._upserts:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(names_of(self.pin.key)))
        made = self._sql("CREATE TABLE {table} ({parts})", parts=sql.SQL(", ").join(parts))
        connection.execute(made)

    def _check_columns(self, connection: Connection[Any], columns: Mapping[str, str]) -> None:
        """The output must fit the table, before anything is computed."""
        found = self._columns(connection)
        fix = "change the table, cast in the pipeline, or write elsewhere with --into"
        for name, ours in columns.items():
            theirs = found.get(name)
            if theirs is None:
                raise SinkError(
                    f"the table has no column {name!r}", where=self.place, fix=fix, column=name
                )
            if not fits(ours, theirs.type):
                raise SinkError(
                    f"the column {name!r} of the output is {ours}, that of the table {theirs.type}",
                    where=self.place,
                    fix=fix,
                    column=name,
                )
        for name, theirs in found.items():
            if theirs.is_required and name not in columns:
                raise SinkError(
                    f"the column {name!r} of the table must have a value, the output has no such "
                    "column",
                    where=self.place,
                    fix=fix,
                    column=name,
                )

    def _check_unique(self, connection: Connection[Any]) -> None:
        """Rows are found by their key: the key must be unique in the table."""
        query = (
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON "
            "a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) WHERE i.indrelid = "
            "to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL "
            "GROUP BY i.indexrelid"
        )
        name = f"{quoted(self._schema)}.{quoted(self._table)}"
        unique = [set(found) for (found,) in connection.execute(query, [name])]
        if set(self.pin.key) not in unique:
            key = ", ".join(map(quoted, self.pin.key))
            raise SinkError(
                f"the key ({', '.join(self.pin.key)}) is not unique in the table",
                where=self.place,
                fix=f"CREATE UNIQUE INDEX ON {name} ({key}); or mode: append",
            )

    def _read_stamp(self, connection: Connection[Any], run: str) -> str | None:
        query = self._sql("SELECT stamp FROM {stamps} WHERE target = %s AND run = %s")
        found = self._one(connection, query, [self._table, run])
        return None if found is None else str(found)

    def _require_whole(self, connection: Connection[Any], stages: Sequence[Stage]) -> None:
        """Staging tables are not in the server's log: a crash of the server empties them."""
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
        from psycopg import sql

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

    def _newest_first(self) -> Composed:
        from psycopg import sql

        at = self._time_beside_key
        last = [] if at is None else [sql.SQL("{} DESC").format(name_of(at))]
        return sql.SQL(", ").join([*map(name_of, self.pin.key), *last])

    def _on_conflict(self, columns: list[str]) -> Composed:
        """A row that is there gives way, unless it has a later time."""
        from psycopg import sql

        rest, at = [name for name in columns if name not in self.pin.key], self._time_beside_key
        if not rest:
            return sql.Composed([sql.SQL("NOTHING")])
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name_of(name)) for name in rest]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes))
        if at is None:
            return update
        older = " WHERE old.{at} IS NULL OR old.{at} <= EXCLUDED.{at}"
        return update + sql.SQL(older).format(at=name_of(at))

    @property
    def _time_beside_key(self) -> str | None:
        """The time by which the latest of several rows is found; None: a key has one row."""
        return None if self.pin.time in self.pin.key else self.pin.time

    def _require_keys(self, connection: Connection[Any], staged: Composed) -> None:
        """No key is null, and which row of a key is the latest is plain."""
        for column in self.pin.key:
            query = self._sql(
                "SELECT count(*) FROM {staged} WHERE {key} IS NULL",
                staged=staged,
                key=name_of(column),
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
        """All staging tables of this run and table: only one batch is ever under way."""
        query = (
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)"
        )
        for (name,) in connection.execute(query, [self._schema, self._prefix]).fetchall():
            connection.execute(self._sql("DROP TABLE IF EXISTS {stage}", stage=self._in(name)))

    # Small questions.

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection[Any]]:
        """A connection; errors are put into our words."""
        from psycopg import Error

        try:
            with connect(self._client) as connection:
                yield connection
        except Error as error:
            raise in_our_words(error, self.place, self._schema) from None

    def _exists(self, connection: Connection[Any], table: str) -> bool:
        name = f"{quoted(self._schema)}.{quoted(table)}"
        return self._one(connection, "SELECT to_regclass(%s)::text", [name]) is not None

    def _columns(self, connection: Connection[Any]) -> dict[str, Column]:
        query = (
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT (atthasdef OR "
            "attidentity <> '' OR attgenerated <> '') FROM pg_attribute WHERE attrelid = "
            "to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        name = f"{quoted(self._schema)}.{quoted(self._table)}"
        return {name: Column(*told) for name, *told in connection.execute(query, [name])}

    @staticmethod
    def _one(connection: Connection[Any], query: Any, values: Sequence[Any] = ()) -> Any:
        found = connection.execute(query, values).fetchone()
        return None if found is None else found[0]

    def _in(self, table: str) -> Identifier:
        from psycopg import sql

        return sql.Identifier(self._schema, table)

    def _sql(self, text: Any, **parts: Any) -> Composed:
        from psycopg import sql

        return sql.SQL(text).format(
            table=self._in(self._table),
            stamps=self._in(_STAMPS),
            schema=sql.Identifier(self._schema),
            **parts,
        )

"""``type: postgres``: an output table of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from tidemill.config.pins import SinkPin
from tidemill.config.section import Columns
from tidemill.config.sink import Place, SinkSection
from tidemill.errors import ConfigError, PlanError

if TYPE_CHECKING:
    from tidemill.connectors.sinks.contract import Sink, SinkRun

_LONGEST = 63
"""Bytes of a name; PostgreSQL cuts off the rest, and two names would be one."""
_OURS = ("dbname", "host", "options", "password", "passfile", "port", "service", "user")
_DEFAULTS = {"connect_timeout": "10", "application_name": "tidemill"}
_SETTINGS = {"options": "-c timezone=UTC", "client_encoding": "UTF8"}


class PostgresSink(SinkSection):
    """A table of PostgreSQL: appended to, or updated by its key. Exactly once."""

    type: Literal["postgres"]
    host: str = Field(description="The server's name, or the folder of its socket.")
    port: int = Field(5432, description="The server's port.")
    database: str = Field(description="The database; it must exist.")
    user: str | None = Field(None, description="Who writes; without it the one who runs Tidemill.")
    password: SecretStr | None = Field(
        None,
        description="Write `${NAME}`: it is read from the environment, shown and kept nowhere.",
    )
    table: str = Field(description="schema.table, upper and lower case as in it; made if missing.")
    mode: Literal["append", "upsert"] = Field(
        "append",
        description="`append` adds every row. `upsert` keeps one row for each key, of several rows "
        "the one with the latest time.",
    )
    key: Columns = Field(
        [], description="The columns that identify a row; `upsert` needs them, and they are unique."
    )
    options: dict[str, str] = Field(
        {}, description="Other connection parameters of libpq: `sslmode`, `sslrootcert`, …"
    )

    is_readable: ClassVar[bool] = True

    @field_validator("table")
    @classmethod
    def _table_name(cls, value: str) -> str:
        wrong = wrong_name(value)
        if wrong is not None:
            raise ValueError(f"{value!r} {wrong}; write schema.table, for example marts.plays")
        return value

    @field_validator("options")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in (name for name in _OURS if name in value):
            raise ValueError(
                f"the option {name!r} is not free; host, port, database, user and password are "
                "keys of the sink"
            )
        return value

    @model_validator(mode="after")
    def _has_key(self) -> PostgresSink:
        if self.mode == "upsert" and not self.key:
            raise ValueError("mode: upsert needs a key; name its columns: key: [account_id]")
        return self

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    def writes(self, target: str) -> dict[Place, str]:
        """The table of this server and database."""
        server = (self.host.casefold(), str(self.port), self.database)
        return {("postgres", *server, *target.split(".")): f"the table {target!r} of PostgreSQL"}

    def check_target(self, target: str) -> None:
        """The name must have a schema, and be short enough for PostgreSQL."""
        wrong = wrong_name(target)
        if wrong is not None:
            raise PlanError(f"the table {target} {wrong}", fix="name another: --into SCHEMA.TABLE")

    def check_output(self, output: str, schema: str, where: str) -> None:
        """Names of columns must be short enough for PostgreSQL, which would cut them."""
        for found in json.loads(schema)["fields"]:
            if len(found["name"].encode()) > _LONGEST:
                raise PlanError(
                    f"the column {found['name']!r} of {output!r} has a name of more than "
                    f"{_LONGEST} bytes, which PostgreSQL cuts off",
                    where=where,
                    fix="rename it in the pipeline",
                )

    def risks(self, output: str) -> Iterable[str]:
        """Without a time the batch decides which row of a key stays, and batches are slices."""
        if self.mode == "upsert" and self.time is None:
            yield (
                f"the sink {output!r} keeps one row for each key and names no time, so the row of "
                "the last batch stays: another slicing, or live, can leave other rows; name its "
                "time, and the row with the latest time stays"
            )

    def pin(self, schema: str, target: str) -> SinkPin:
        """The pin has the table and the mode, but not the server, which may be secret."""
        self.check_target(target)
        own = {"table": target, "mode": self.mode}
        place = f"postgres:{target}"
        return SinkPin("postgres", place, schema, self.time, tuple(self.key), own=own)

    @classmethod
    def open(cls, run: SinkRun, name: str, pin: SinkPin) -> Sink:
        """Driver: the table of a pin, on the server that the YAML names now."""
        try:
            from tidemill.connectors.sinks.postgres.table import PostgresTable
        except ModuleNotFoundError:
            raise ConfigError(
                "writing to PostgreSQL needs psycopg, which is not installed",
                fix="pip install 'tidemill[postgres]'",
            ) from None
        return PostgresTable(run, pin, run.section(name, cls))

    def connection(self) -> dict[str, str]:
        """The parameters of libpq. They hold the password."""
        given = {"host": self.host, "port": str(self.port), "dbname": self.database}
        if self.user is not None:
            given["user"] = self.user
        if self.password is not None:
            given["password"] = self.password.get_secret_value()
        return {**_DEFAULTS, **self.options, **given, **_SETTINGS}


def wrong_name(table: str) -> str | None:
    """What is wrong with the name of a table, if anything."""
    parts = table.split(".")
    if len(parts) != 2 or not all(parts):
        return "is not schema.table"
    if any(len(part.encode()) > _LONGEST for part in parts):
        return f"has a name of more than {_LONGEST} bytes, which PostgreSQL cuts off"
    return None

"""A driver that kills itself (kill -9) before or after a named step of one batch's commit.

``python -m tests.connectors.sinks.postgres.victim WHEN STEP SERVER SCHEMA``, with JSON for SERVER.
"""

import json
import os
import signal
import sys
from typing import Any

from tests.connectors.sinks.postgres.stage import Stage, stamp, table, write
from tidemill.connectors.sinks.postgres.table import PostgresTable

STEPS = ("_lock", "_require_whole", "_merge", "_write_stamp", "_drop_stages", "commit")
ROWS = [(n, n, f"n{n}") for n in range(12)]


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(when: str, step: str) -> None:
    real = getattr(PostgresTable, step)

    def wrapped(self: PostgresTable, *given: Any) -> Any:
        if when == "before":
            die()
        found = real(self, *given)
        die()
        return found

    setattr(PostgresTable, step, wrapped)


def batch(stage: Stage, number: int, armed: tuple[str, str] | None = None) -> None:
    """What a driver does of a batch, from its start: prepare, tasks, commit."""
    sink = stage.ready(mode="upsert", key=["id"], time="at")
    write(sink, table(ROWS[0]))  # an attempt in vain
    written = write(sink, table(*ROWS[number * 4 :][:2]), table(*ROWS[number * 4 + 2 :][:2]))
    if armed is not None:
        arm(*armed)
    sink.commit(stamp(number), written)


if __name__ == "__main__":
    when, step, server, schema = sys.argv[1:]
    there = Stage(json.loads(server), schema)
    batch(there, 0)
    batch(there, 1, (when, step))

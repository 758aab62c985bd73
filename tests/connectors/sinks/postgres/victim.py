"""Drivers that kill themselves (kill -9) before or after a named step of one batch's commit.

``python -m tests.connectors.sinks.postgres.victim SERVER``, with JSON for SERVER. Each line ``WHEN
STEP SCHEMA`` on stdin forks a driver, whose exit code is the answer: imports are paid for once.
"""

import json
import multiprocessing
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


def drive(server: dict[str, Any], when: str, step: str, schema: str) -> None:
    there = Stage(server, schema)
    batch(there, 0)
    batch(there, 1, (when, step))


if __name__ == "__main__":
    server = json.loads(sys.argv[1])
    for line in sys.stdin:
        driver = multiprocessing.get_context("fork").Process(
            target=drive, args=(server, *line.split())
        )
        driver.start()
        driver.join()
        print(driver.exitcode, flush=True)

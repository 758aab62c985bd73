"""A run's metrics in the registry's database: its newest batches whole, older ones by the hour."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby

from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.metrics.figures import BatchMetrics
from tidemill.planning.metrics.hours import HourMetrics, RunMetrics, hour_of, with_batch

KEPT = 500
"""Batches of which all figures are kept, at least."""
_ROUND = 50
"""Older ones are summed up at every so many batches: a batch alone would cost as much."""
KEPT_HOURS = 24 * 366
"""Hours that a run keeps."""


def keep_metrics(connection: sqlite3.Connection, run: str, metrics: BatchMetrics) -> None:
    """Keep a batch's figures, inside a transaction; a repeat of the batch replaces them.

    A batch that is in an hour already is left out: a repeat of it must not count twice.
    """
    summed = connection.execute(
        "select max(last) from metric_hours where run = ?", (run,)
    ).fetchone()[0]
    if summed is not None and metrics.batch <= summed:
        return
    connection.execute(
        "insert or replace into metrics (run, batch, figures) values (?, ?, ?)",
        (run, metrics.batch, dump_json(metrics)),
    )
    if metrics.batch % _ROUND == 0:
        _sum_up(connection, run, metrics.batch - KEPT)


def _sum_up(connection: sqlite3.Connection, run: str, last: int) -> None:
    """Move the batches up to the last one into their hours."""
    rows = connection.execute(
        "select figures from metrics where run = ? and batch <= ? order by batch", (run, last)
    ).fetchall()
    old = [load_json(BatchMetrics, row[0]) for row in rows]
    for at, batches in groupby(old, hour_of):
        _add(connection, run, at, list(batches))
    connection.execute("delete from metrics where run = ? and batch <= ?", (run, last))


def _add(
    connection: sqlite3.Connection, run: str, at: int, batches: Sequence[BatchMetrics]
) -> None:
    """Add batches to an hour; the oldest hours go."""
    found = connection.execute(
        "select figures from metric_hours where run = ? and hour = ?", (run, at)
    ).fetchone()
    first, *others = batches
    hour = with_batch(None if found is None else load_json(HourMetrics, found[0]), first)
    for batch in others:
        hour = with_batch(hour, batch)
    connection.execute(
        "insert or replace into metric_hours (run, hour, last, figures) values (?, ?, ?, ?)",
        (run, at, batches[-1].batch, dump_json(hour)),
    )
    if found is None:
        connection.execute(
            "delete from metric_hours where run = ? and hour not in (select hour from metric_hours"
            " where run = ? order by hour desc limit ?)",
            (run, run, KEPT_HOURS),
        )


def read_metrics(connection: sqlite3.Connection, run: str, last: int | None) -> RunMetrics:
    """What is kept of a run; only its last batches, if a number is given."""
    batches = connection.execute(
        "select figures from metrics where run = ? order by batch desc limit ?",
        (run, -1 if last is None else last),
    ).fetchall()
    hours = connection.execute(
        "select figures from metric_hours where run = ? order by hour", (run,)
    )
    return RunMetrics(
        run,
        () if last is not None else tuple(load_json(HourMetrics, row[0]) for row in hours),
        tuple(load_json(BatchMetrics, row[0]) for row in reversed(batches)),
    )

"""Plays of shows as they arrive in a table: the last hours at once, then every second more.

Each commit says how far the table is complete, as `tidemill archive run` says it of a log.

``python -m apps.demo.feed FOLDER --rate 40`` goes on until it is told to end (SIGTERM).
"""

import argparse
import signal
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

import tidemill
from tidemill.archive.progress import ArchiveProgress, read_progress, to_summary
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.types import SECOND, to_micros

TABLE = "events.plays"
COUNTRIES = np.array(["US", "DE", "JP", "BR", "IN"])
_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("event_ts", _TIME),
        ("ingest_ts", _TIME),
        ("show_id", pa.int64()),
        ("country", pa.string()),
        ("seconds", pa.int64()),
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
    ]
)
_SHOWS, _LATE = 20, 0.01
_AT_ONCE = timedelta(hours=1)


def rows_between(first: int, last: int, rows: int, offset: int, seed: int) -> pa.Table:
    """Rows whose ingest time lies between two times (µs); one in a hundred comes too late."""
    chosen = np.random.default_rng(seed)
    ingest = np.sort(chosen.integers(first, max(last, first + 1), rows))
    delay = chosen.exponential(0.8 * SECOND, rows)
    delay = np.where(chosen.random(rows) < _LATE, 60 * SECOND, np.minimum(delay, 4 * SECOND))
    return pa.table(
        {
            "event_ts": pa.array(ingest - delay.astype(np.int64)).cast(_TIME),
            "ingest_ts": pa.array(ingest).cast(_TIME),
            "show_id": pa.array(chosen.zipf(1.5, rows) % _SHOWS, pa.int64()),
            "country": pa.array(chosen.choice(COUNTRIES, rows, p=[0.4, 0.25, 0.05, 0.2, 0.1])),
            "seconds": pa.array(chosen.integers(1, 3_600, rows), pa.int64()),
            "log_partition": pa.array(np.zeros(rows), pa.int32()),
            "log_offset": pa.array(np.arange(offset, offset + rows), pa.int64()),
        },
        schema=SCHEMA,
    )


def append(catalog: Catalog, rows: pa.Table, until: int) -> None:
    """Commit rows that complete the table up to a time (µs); a run that sets tags may be first."""
    progress = ArchiveProgress(rows["log_offset"][-1].as_py() + 1, until)
    while True:
        table = ensure_table(catalog, TABLE, SCHEMA, None, "none")
        with suppress(CommitFailedException):
            table.append(rows, snapshot_properties=to_summary({0: progress}))
            return


def write_past(catalog: Catalog, begin: datetime, end: datetime, rate: int) -> int:
    """The rows of a stretch that is over, a file for every hour; returns how many."""
    offset = 0
    while begin < end:
        until = min(begin + _AT_ONCE, end)
        rows = int((until - begin).total_seconds() * rate)
        made = rows_between(to_micros(begin), to_micros(until), rows, offset, offset)
        append(catalog, made, to_micros(until))
        begin, offset = until, offset + rows
    return offset


def follow(catalog: Catalog, rate: int) -> None:
    """Every second the rows that have come since."""
    known = read_progress(catalog.load_table(TABLE).metadata)[0]
    offset, last, is_over = known.next, known.frontier, False

    def end(*_: object) -> None:
        nonlocal is_over
        is_over = True

    signal.signal(signal.SIGTERM, end)
    while not is_over:
        time.sleep(1)
        now = time.time_ns() // 1_000
        rows = max(1, (now - last) * rate // SECOND)
        append(catalog, rows_between(last, now, rows, offset, offset), now)
        last, offset = now, offset + rows


def main() -> None:
    """Follow until the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rate", type=int, default=40, help="rows per second")
    given = parser.parse_args()
    follow(open_catalog(tidemill.load(given.folder / "tidemill.yaml").loaded), given.rate)


if __name__ == "__main__":
    main()

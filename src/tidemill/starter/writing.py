"""``tidemill init``: a small project that works, with a day of made-up events."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from tidemill.config.loader import load_config
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import ConfigError
from tidemill.iceberg.catalog import open_catalog
from tidemill.types import SECOND, show_instant, to_micros

_FILES = ("tidemill.yaml", "pipelines.py")
_ROWS = 120_000
_HOURS = 25
_PARTITIONS = 3
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    {
        "account_id": pa.int64(),
        "show_id": pa.int64(),
        "seconds": pa.int64(),
        "event_ts": _TIME,
        "ingest_ts": _TIME,
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.int64(),
    }
)


@dataclass(frozen=True)
class Starter:
    """What was written."""

    folder: Path
    rows: int
    start: str
    end: str


def write_starter(folder: Path) -> Starter:
    """Write the project; refuses a folder that holds one already."""
    refuse_existing(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        shutil.copyfile(Path(__file__).with_name(name), folder / name)
    catalog = open_catalog(load_config(folder / "tidemill.yaml"))
    table = ensure_table(catalog, "events.playbacks", _SCHEMA, "ingest_ts", "day")
    for chunk in _day(random.Random(7)):
        table.append(chunk)
    end = show_instant(_START + timedelta(days=1))
    return Starter(folder, _ROWS, show_instant(_START), end)


def refuse_existing(folder: Path) -> None:
    """Nothing that is there is overwritten."""
    for name in _FILES:
        if (folder / name).exists():
            raise ConfigError(
                f"there is a {name} already",
                where=str(folder.absolute()),
                fix="run 'tidemill init' in an empty folder, or 'tidemill init FOLDER'",
            )


def _day(chance: random.Random) -> list[pa.Table]:
    """A day and an hour of events, in six files, sorted by ingest time."""
    start, span = to_micros(_START), _HOURS * 3600 * SECOND
    ingests = sorted(start + int(chance.random() * span) for _ in range(_ROWS))
    rows = [
        {
            "event_ts": ingest - int(chance.expovariate(1 / 90) * SECOND),
            "show_id": int(chance.paretovariate(0.9)) % 40,
            "account_id": chance.randrange(20_000),
            "seconds": chance.randrange(30, 3_600),
            "ingest_ts": ingest,
            "kafka_partition": index % _PARTITIONS,
            "kafka_offset": index // _PARTITIONS,
        }
        for index, ingest in enumerate(ingests)
    ]
    shape = pa.schema({f.name: pa.int64() if f.type == _TIME else f.type for f in _SCHEMA})
    table = pa.Table.from_pylist(rows, schema=shape).cast(_SCHEMA)
    return [table.slice(at, _ROWS // 6) for at in range(0, _ROWS, _ROWS // 6)]

"""Data as users have it: taxi trips, web logs, sensor readings."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog

from tidemill.types import SECOND, to_micros

DAY = 86_400 * SECOND
START = to_micros(datetime(2026, 1, 1, tzinfo=UTC))


def times(micros: list[Any], zone: str | None = "UTC") -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", zone))


def trips(count: int = 2_000, days: int = 20) -> pa.Table:
    """Two times, none of which tells when the row was written, and neither has a zone."""
    chance = Random(1)
    pickups = sorted(START + chance.randrange(days * DAY) for _ in range(count))
    return pa.table(
        {
            "VendorID": [chance.choice([1, 2]) for _ in range(count)],
            "tpep_pickup_datetime": times(pickups, None),
            "tpep_dropoff_datetime": times(
                [at + chance.randrange(2_400) * SECOND for at in pickups], None
            ),
            "passenger_count": pa.array([chance.randrange(5) for _ in range(count)], pa.uint8()),
            "fare_amount": [chance.random() * 50 for _ in range(count)],
        }
    )


def web_logs(count: int = 4_000) -> pa.Table:
    """A topic's archive: 30 s of delay at most, but for two rows that came two hours late."""
    chance = Random(2)
    seen = sorted(START + chance.randrange(DAY // 4) for _ in range(count))
    delays = [chance.randrange(30 * SECOND) for _ in seen]
    delays[7] = delays[-7] = 7_200 * SECOND
    return pa.table(
        {
            "time": times([at - delay for at, delay in zip(seen, delays, strict=True)]),
            "received_at": times(seen),
            "client": [f"10.0.{chance.randrange(256)}.{chance.randrange(256)}" for _ in seen],
            "path": [chance.choice(["/", "/cart", "/login"]) for _ in seen],
            "status": pa.array([chance.choice([200, 404]) for _ in seen], pa.int16()),
            "bytes": [chance.randrange(100, 9_000) for _ in seen],
            "kafka_partition": pa.array([n % 3 for n in range(count)], pa.int32()),
            "kafka_offset": [n // 3 for n in range(count)],
            "line_time": ["01/Jan/2026:00:00:01 +0000"] * count,
        }
    )


def readings(count: int = 2_000) -> pa.Table:
    """Measured in local time, two hours ahead of UTC; without a zone."""
    chance = Random(3)
    at = sorted(START + chance.randrange(7_000 * SECOND) for _ in range(count))
    return pa.table(
        {
            "sensor id": [f"s{chance.randrange(9)}" for _ in at],
            "measuredAt": times([each + 7_200 * SECOND for each in at], None),
            "ingested_at": times([each + chance.randrange(4 * SECOND) for each in at]),
            "temperature": [chance.gauss(20, 3) for _ in at],
        }
    )


SHAPES = {"trips": trips, "weblogs": web_logs, "readings": readings}


def write_folder(rows: pa.Table, folder: Path, files: int = 3, **options: Any) -> Path:
    """The rows as Parquet files of several row groups."""
    folder.mkdir(parents=True)
    size = -(-len(rows) // files)
    for n in range(files):
        part = rows.slice(n * size, size)
        pq.write_table(part, folder / f"{n}.parquet", **{"row_group_size": size // 2, **options})
    return folder


def open_lake(folder: Path, name: str = "lake") -> Catalog:
    (folder / "lake").mkdir(exist_ok=True)
    place = f"{folder}/lake"
    return load_catalog(
        name, uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse"
    )


def write_table(rows: pa.Table, folder: Path, table: str, files: int = 3) -> None:
    """The rows as an Iceberg table of the catalog in `lake`."""
    catalog = open_lake(folder)
    catalog.create_namespace_if_not_exists(table.split(".", maxsplit=1)[0])
    made = catalog.create_table(table, rows.schema)
    size = -(-len(rows) // files)
    for n in range(files):
        made.append(rows.slice(n * size, size))


LAKE = ("--catalog", "sqlite:///lake/catalog.db", "--catalog", "name=lake")


def with_column(rows: pa.Table, **columns: Any) -> pa.Table:
    """The rows with these columns instead of, or beside, their own; None takes one away."""
    made = {name: rows[name] for name in rows.column_names} | columns
    return pa.table({name: value for name, value in made.items() if value is not None})

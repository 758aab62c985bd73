"""Trips, driver pings and incentives of several cities: seeded, of any size.

A driver is online for some hours of the day. While online, the driver's phone sends a ping every
five minutes, with how many trips were offered and accepted since the one before. A trip is told
when it ends. Some events arrive late, as phones in tunnels do.

Incentives are of the two kinds of the talk that asked for them: a *guarantee* of so much an hour
with a minimum of hours online, of the rating and of the acceptance rate, and a *quest*, a bonus for
so many trips. Their periods lie anywhere: over, running, or still to come.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from apps.playback import generate as playback
from apps.playback.generate import PARTITIONS, START, Hour

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

TRIPS, PINGS, INCENTIVES = "events.trips", "events.pings", "ops.incentives"
CITIES = ("SF", "LA", "NY", "LN")
VEHICLES = ("standard", "black")
PING = timedelta(minutes=5)
DRIVERS = 200

_PINGS_AN_HOUR = timedelta(hours=1) // PING
_TRIPS_A_PING, _OFFERS_A_PING, _ACCEPTED = 0.3, 0.45, 0.85
_ONLINE_HOURS = 9  # of a day, beginning at an hour of the driver's own
_SOON, _LATE = timedelta(seconds=4), timedelta(minutes=25)
_LATE_SHARE = 0.01

_TIME = pa.timestamp("us", "UTC")
_DRIVER = [
    ("driver_id", pa.int64()),
    ("city", pa.string()),
    ("vehicle", pa.string()),
    ("rating", pa.float64()),
]
_LOG = [
    ("event_ts", _TIME),
    ("ingest_ts", _TIME),
    ("kafka_partition", pa.int32()),
    ("kafka_offset", pa.int64()),
]
SCHEMAS = {
    TRIPS: pa.schema([("trip_id", pa.int64()), *_DRIVER, ("fare_cents", pa.int64()), *_LOG]),
    PINGS: pa.schema(
        [
            *_DRIVER,
            ("minutes", pa.int64()),
            ("offered", pa.int64()),
            ("accepted", pa.int64()),
            *_LOG,
        ]
    ),
}
INCENTIVE = pa.schema(
    [
        ("incentive_id", pa.string()),
        ("starts_at", _TIME),
        ("ends_at", _TIME),
        ("kind", pa.string()),
        ("city", pa.string()),
        ("vehicle", pa.string()),
        ("min_rating", pa.float64()),
        ("min_minutes", pa.int64()),
        ("min_acceptance", pa.float64()),
        ("cents_an_hour", pa.int64()),
        ("trips_wanted", pa.int64()),
        ("bonus_cents", pa.int64()),
        ("closes_at", _TIME),
    ]
)


def generate(
    catalog: Catalog,
    *,
    drivers: int = DRIVERS,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
    incentives: int = 24,
) -> int:
    """Fill the archives, a file for every hour, and the table of incentives; how many events."""
    from tidemill.connectors.sinks.iceberg.tables import ensure_table

    made = make_hours(drivers=drivers, start=start, hours=hours, seed=seed)
    total = playback.write_hours(catalog, SCHEMAS, made)
    table = ensure_table(catalog, INCENTIVES, INCENTIVE, "starts_at", None)
    table.append(make_incentives(incentives, start=start, hours=hours, seed=seed))
    return total


def make_hours(
    *, drivers: int = DRIVERS, start: datetime = START, hours: int = 24, seed: int = 1
) -> Iterator[Hour]:
    """The rows of both logs by hour of ingest time, sorted by it."""
    people = make_drivers(drivers, seed)
    offsets = {name: np.zeros(PARTITIONS, np.int64) for name in SCHEMAS}
    under_way = dict.fromkeys(SCHEMAS, pl.DataFrame())
    for index in range(hours):
        begin = start + timedelta(hours=index)
        number = int(begin.timestamp()) // 3_600
        chance = np.random.default_rng([seed, number])
        pings = _make_pings(chance, people, begin, number)
        group = {PINGS: pings, TRIPS: _make_trips(chance, pings, number)}
        hour: Hour = {}
        for name, rows in group.items():
            sent = pl.concat([_sent(chance, rows), under_way[name]], how="diagonal")
            has_arrived = pl.col("ingest_ts") < begin + timedelta(hours=1)
            under_way[name] = sent.filter(~has_arrived)
            arrived = sent.filter(has_arrived).sort("ingest_ts", maintain_order=True)
            hour[name] = _to_arrow(arrived, SCHEMAS[name], offsets[name])
        yield hour


def make_drivers(drivers: int, seed: int) -> pl.DataFrame:
    """Each with a city, a vehicle, a rating and the hour at which the day begins."""
    chance = np.random.default_rng([seed, drivers])
    return pl.DataFrame(
        {
            "driver_id": np.arange(drivers),
            "city": np.array(CITIES)[chance.integers(0, len(CITIES), drivers)],
            "vehicle": np.array(VEHICLES)[(chance.random(drivers) < 0.2).astype(int)],
            "rating": np.round(5 - chance.standard_exponential(drivers) * 0.25, 1).clip(3),
            "begins": chance.integers(0, 24, drivers),
        }
    )


def make_incentives(
    count: int, *, start: datetime = START, hours: int = 24, seed: int = 1
) -> pa.Table:
    """Guarantees and quests by turns, over periods of some hours, on whole minutes."""
    chance = np.random.default_rng([seed, 77])
    minutes = max(1, hours - 4) * 60
    begins = chance.integers(0, minutes, count)
    lengths = chance.integers(30, 8 * 60, count)
    rows = []
    for number in range(count):
        is_quest = number % 2 == 1
        begin = start + timedelta(minutes=int(begins[number]))
        end = begin + timedelta(minutes=int(lengths[number]))
        rows.append(
            {
                "incentive_id": f"{'quest' if is_quest else 'guarantee'}-{number:03}",
                "starts_at": begin,
                "ends_at": end,
                "kind": "quest" if is_quest else "guarantee",
                "city": CITIES[int(chance.integers(0, len(CITIES)))],
                "vehicle": VEHICLES[int(chance.random() < 0.2)],
                "min_rating": float(chance.choice([0.0, 4.5, 4.8])),
                "min_minutes": None if is_quest else int(chance.choice([0, 30, 90])),
                "min_acceptance": None if is_quest else float(chance.choice([0.0, 0.8])),
                "cents_an_hour": None if is_quest else int(chance.choice([2_500, 4_000])),
                "trips_wanted": int(chance.integers(2, 8)) if is_quest else None,
                "bonus_cents": int(chance.choice([1_000, 5_000])) if is_quest else None,
                "closes_at": end,
            }
        )
    return pa.Table.from_pylist(rows, schema=INCENTIVE)


def _make_pings(
    chance: np.random.Generator, people: pl.DataFrame, begin: datetime, number: int
) -> pl.DataFrame:
    """A ping every five minutes of those who are online in this hour."""
    online = people.filter((number - pl.col("begins")) % 24 < _ONLINE_HOURS)
    pings = online.join(pl.DataFrame({"n": np.arange(_PINGS_AN_HOUR)}), how="cross")
    offered = chance.poisson(_OFFERS_A_PING, len(pings))
    jitter = chance.integers(0, PING // timedelta(milliseconds=1), len(pings))
    return pings.select(
        *("driver_id", "city", "vehicle", "rating"),
        minutes=pl.lit(PING // timedelta(minutes=1), pl.Int64),
        offered=pl.Series(offered, dtype=pl.Int64),
        accepted=pl.Series(chance.binomial(offered, _ACCEPTED), dtype=pl.Int64),
        event_ts=pl.lit(begin) + pl.col("n") * PING + _milliseconds(jitter),
    )


def _make_trips(chance: np.random.Generator, pings: pl.DataFrame, number: int) -> pl.DataFrame:
    """Trips end at the moment of a ping, more or less."""
    chosen = pings.filter(pl.Series(chance.random(len(pings)) < _TRIPS_A_PING))
    away = chance.integers(0, 60_000, len(chosen))
    fares = (300 + chance.standard_exponential(len(chosen)) * 1_200).astype(np.int64)
    return chosen.select(
        *("driver_id", "city", "vehicle", "rating"),
        trip_id=(number << 24) + pl.int_range(pl.len()),
        fare_cents=pl.Series(fares),
        event_ts=pl.col("event_ts") + _milliseconds(away),
    )


def _sent(chance: np.random.Generator, rows: pl.DataFrame) -> pl.DataFrame:
    """With the moment at which they arrive; a few are later than any pipeline waits."""
    way = chance.standard_exponential(len(rows)) * (_SOON / timedelta(milliseconds=1))
    way += (chance.random(len(rows)) < _LATE_SHARE) * (_LATE / timedelta(milliseconds=1))
    return rows.with_columns(ingest_ts=pl.col("event_ts") + _milliseconds(way.astype(np.int64)))


def _milliseconds(values: np.ndarray) -> pl.Series:
    return pl.Series(values * 1_000).cast(pl.Duration("us"))


def _to_arrow(rows: pl.DataFrame, schema: pa.Schema, offsets: np.ndarray) -> pa.Table:
    placed = rows.with_columns(
        kafka_partition=(pl.col("driver_id") % PARTITIONS).cast(pl.Int32),
        kafka_offset=pl.lit(0, pl.Int64),
    )
    log = placed.select(schema.names).to_arrow().cast(schema)
    return playback.number_anew(log, offsets)


def main() -> None:
    """``python generate.py --drivers 1000``, in the folder of a tidemill.yaml."""
    parser = playback.make_parser("Fill the archives of an incentives project.")
    parser.set_defaults(rows=None)
    parser.add_argument("--drivers", type=int, default=DRIVERS)
    parser.add_argument("--incentives", type=int, default=24)

    def fill(catalog: Catalog, *, rows: int | None, **given: object) -> int:
        del rows
        return generate(catalog, **given)  # type: ignore[arg-type]

    playback.run(parser, fill)


if __name__ == "__main__":
    main()

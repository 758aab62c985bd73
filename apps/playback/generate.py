"""Playback and impression events as an archive: seeded, realistic, of any size.

People see a show on a page (an impression) and many of them play it (a playback). Three regions
have their evenings at different hours, shows and accounts are Zipf distributed, most events arrive
within seconds and some after hours, some come from clocks that are fast, a few cannot be decoded.

An hour is made from the seed and the hour alone, so memory stays small however long the archive
is, and the same arguments give the same rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PLAYBACKS, IMPRESSIONS = "events.playbacks", "events.impressions"
START = datetime(2026, 3, 1, tzinfo=UTC)
PARTITIONS = 6
SHOWS, ACCOUNTS = 2_000, 1_000_000
REGIONS = ("us-east-1", "eu-west-1", "ap-southeast-1")
COUNTRIES = ("US", "CA", "BR", "GB", "DE", "FR", "JP", "IN", "AU")  # three of each region

_HOUR = 3_600_000  # times are milliseconds, as in a log
_REGION_SIZE = np.array([0.45, 0.35, 0.20])
_EVENING = np.array([1, 19, 12])  # 20 o'clock of each region, in UTC
_STRAGGLERS, _FAST_CLOCKS, _UNDECODABLE, _LINKED = 0.04, 0.02, 2e-4, 0.7
_BROKEN = (
    (b'{"account_id": 48151, "show_id": 16', "json: unexpected end of input"),
    (b"\x00\x00\x00\x2a\xff\xfe", "json: not UTF-8"),
    (b'{"account_id": "anonymous"}', "json: account_id is not a number"),
)
_APPEND_ROWS = 1_000_000

_TIME = pa.timestamp("us", "UTC")
_KEYS = [("impression_id", pa.int64()), ("account_id", pa.int64()), ("show_id", pa.int64())]
_PLACE = [("country", pa.string()), ("region", pa.string())]
_LOG = [
    ("event_ts", _TIME),
    ("ingest_ts", _TIME),
    ("kafka_partition", pa.int32()),
    ("kafka_offset", pa.int64()),
    ("_raw", pa.binary()),
    ("_reason", pa.string()),
]
SCHEMAS = {
    PLAYBACKS: pa.schema([*_KEYS, ("view_seconds", pa.int32()), *_PLACE, *_LOG]),
    IMPRESSIONS: pa.schema([*_KEYS, ("slot", pa.int32()), *_PLACE, *_LOG]),
}

Hour = dict[str, pa.Table]
Columns = dict[str, np.ndarray]


def generate(
    catalog: Catalog,
    *,
    rows: int = 1_000_000,
    impressions: int | None = None,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
) -> int:
    """Fill both tables, a file for every hour, and return how many rows they have together.

    Arguments as in :func:`make_hours`.
    """
    made = make_hours(rows=rows, impressions=impressions, start=start, hours=hours, seed=seed)
    return write_hours(catalog, SCHEMAS, made)


def write_hours(catalog: Catalog, schemas: dict[str, pa.Schema], hours: Iterator[Hour]) -> int:
    """Make these tables, append the hours, return how many rows there are.

    The tables must be empty, because offsets begin at 0.
    """
    from tidemill.connectors.sinks.iceberg.tables import ensure_table

    tables = {
        name: ensure_table(catalog, name, schema, "ingest_ts", "hour")
        for name, schema in schemas.items()
    }
    for name, table in tables.items():
        if table.current_snapshot() is not None:
            raise ValueError(f"{name} has rows already; drop it first")
    total = 0
    appends: list[Future[None]] = []
    with ThreadPoolExecutor(len(tables)) as pool:
        for group in _grouped(hours):
            _await(appends)
            appends = [
                pool.submit(tables[name].append, part)
                for name, part in group.items()
                if part.num_rows
            ]
            total += sum(part.num_rows for part in group.values())
        _await(appends)
    return total


def _await(appends: list[Future[None]]) -> None:
    for append in appends:
        append.result()


def _grouped(hours: Iterator[Hour]) -> Iterator[Hour]:
    """Small hours together: a commit costs as much as many rows."""
    held: list[Hour] = []
    for hour in hours:
        held.append(hour)
        if sum(part.num_rows for each in held for part in each.values()) >= _APPEND_ROWS:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(hours: list[Hour]) -> Hour:
    return {name: pa.concat_tables([hour[name] for hour in hours]) for name in hours[0]}


def make_hours(
    *,
    rows: int = 1_000_000,
    impressions: int | None = None,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
) -> Iterator[Hour]:
    """The rows of both tables, by hour of ingest time and sorted by it, without any catalog.

    ``rows`` is the number of playbacks; without ``impressions`` there are half as many again of
    those. ``start`` must be a full hour, with its zone.
    """
    first, rest = divmod(start.timestamp(), 3_600)
    if rest or start.tzinfo is None:
        raise ValueError(f"{start.isoformat()} is not a full hour with its zone")
    first = int(first)
    activity = _activity(np.arange(first, first + hours))
    played = _share_out(rows, activity.sum(axis=1))
    seen = _share_out(rows * 3 // 2 if impressions is None else impressions, activity.sum(axis=1))
    offsets = {name: np.zeros(PARTITIONS, np.int64) for name in SCHEMAS}
    for index in range(hours):
        hour, mix = first + index, activity[index]
        chance = np.random.Generator(np.random.SFC64([seed, hour]))
        shown = _make_impressions(chance, hour, seen[index], mix)
        plays = _make_playbacks(chance, hour, played[index], mix, shown)
        yield {
            name: _to_arrow(chance, columns, SCHEMAS[name], offsets[name])
            for name, columns in ((PLAYBACKS, plays), (IMPRESSIONS, shown))
        }


def _activity(hours: np.ndarray) -> np.ndarray:
    """How much happens in each hour (rows) in each region (columns): most in its evening."""
    phase = np.cos((hours[:, None] - _EVENING) * (2 * np.pi / 24))
    return _REGION_SIZE * (0.15 + ((1 + phase) / 2) ** 2)


def _share_out(total: int, weights: np.ndarray) -> np.ndarray:
    """Whole numbers in proportion to the weights, with exactly this sum."""
    return np.diff(np.rint(weights.cumsum() * (total / weights.sum())).astype(np.int64), prepend=0)


def _make_impressions(chance: np.random.Generator, hour: int, n: int, mix: np.ndarray) -> Columns:
    return {
        **_make_events(chance, hour, n, mix),
        "impression_id": (hour << 32) + np.arange(n),
        "slot": chance.integers(0, 40, n, np.int32),
    }


def _make_playbacks(
    chance: np.random.Generator, hour: int, n: int, mix: np.ndarray, shown: Columns
) -> Columns:
    """Most playbacks follow an impression of the hour: same account, show and country."""
    plays = _make_events(chance, hour, n, mix)
    seen_at = plays["event_ts"] - (chance.standard_exponential(n) * 30_000).astype(np.int64)
    cause = np.searchsorted(shown["ingest_ts"], seen_at) - 1
    linked = (cause >= 0) & (chance.random(n, np.float32) < _LINKED)
    causes = cause[linked]
    for name in ("account_id", "show_id", "country"):
        plays[name][linked] = shown[name][causes]
    ids = np.ma.masked_all(n, np.int64)
    ids[linked] = shown["impression_id"][causes]
    view = (chance.standard_exponential(n, np.float32) * 1_500).astype(np.int32)
    return {**plays, "impression_id": ids, "view_seconds": np.minimum(view, 10_800)}


def _make_events(chance: np.random.Generator, hour: int, n: int, mix: np.ndarray) -> Columns:
    """What both kinds share. Ingest times rise, as those of a log do."""
    steps = chance.standard_exponential(n + 1).cumsum()
    ingest = hour * _HOUR + np.minimum(steps[:n] * (_HOUR / steps[n]), _HOUR - 1).astype(np.int64)
    region = np.searchsorted(mix.cumsum() / mix.sum(), chance.random(n), side="right")
    return {
        "ingest_ts": ingest,
        "event_ts": ingest - _delays(chance, n),
        "account_id": _zipf(chance, n, ACCOUNTS, 0.6) * 7_919 % ACCOUNTS,
        "show_id": _zipf(chance, n, SHOWS, 0.9) * 7_919 % SHOWS,
        "country": region * 3 + chance.integers(0, 3, n),
    }


def _delays(chance: np.random.Generator, n: int) -> np.ndarray:
    """Milliseconds from event to ingest: seconds as a rule, a heavy tail, some below zero."""
    delays = np.exp(chance.standard_normal(n, np.float32)) * 2_500
    stragglers = chance.integers(0, n, int(n * _STRAGGLERS)) if n else []
    tail = 60_000 * chance.pareto(1.0, len(stragglers))
    delays[stragglers] += np.minimum(tail, 48 * _HOUR)
    fast = chance.integers(0, n, int(n * _FAST_CLOCKS)) if n else []
    delays[fast] = -15_000 * chance.standard_exponential(len(fast))
    return delays.astype(np.int64)


def _zipf(chance: np.random.Generator, n: int, keys: int, exponent: float) -> np.ndarray:
    """Ranks from 1 to ``keys``, rank k with a weight of k^-exponent (below 1), by inversion."""
    power = 1 - exponent
    ranks = (1 + chance.random(n) * ((keys + 1) ** power - 1)) ** (1 / power)
    return ranks.astype(np.int64)


def _to_arrow(
    chance: np.random.Generator, columns: Columns, schema: pa.Schema, offsets: np.ndarray
) -> pa.Table:
    """The hour as the archive keeps it; ``offsets`` move on by the records of each partition."""
    n = len(columns["ingest_ts"])
    broken = chance.random(n, np.float32) < _UNDECODABLE
    kind = pa.array(chance.integers(0, len(_BROKEN), n, np.int8), mask=~broken)
    partition = (columns["account_id"] % PARTITIONS).astype(np.int32)
    made = {
        "country": pa.array(COUNTRIES).take(pa.array(columns["country"], mask=broken)),
        "region": pa.array(REGIONS).take(pa.array(columns["country"] // 3, mask=broken)),
        "event_ts": pa.array(columns["event_ts"] * 1_000, mask=broken).view(_TIME),
        "ingest_ts": pa.array(columns["ingest_ts"] * 1_000).view(_TIME),
        "kafka_partition": pa.array(partition),
        "kafka_offset": pa.array(_positions(partition, offsets)),
        "_raw": pa.array([raw for raw, _ in _BROKEN]).take(kind),
        "_reason": pa.array([reason for _, reason in _BROKEN]).take(kind),
    }
    for name in schema.names:
        if name not in made:
            values = columns[name]
            missing = broken | np.ma.getmaskarray(values)
            made[name] = pa.array(np.ma.getdata(values), mask=missing)
    return pa.table([made[name] for name in schema.names], schema=schema)


def _positions(partition: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    positions = np.empty(len(partition), np.int64)
    for number in range(PARTITIONS):
        at = np.flatnonzero(partition == number)
        positions[at] = offsets[number] + np.arange(len(at))
        offsets[number] += len(at)
    return positions


def number_anew(log: pa.Table, offsets: np.ndarray) -> pa.Table:
    """A log that was divided or added to, with offsets that go on from these, which move on."""
    column = log.schema.get_field_index("kafka_offset")
    positions = pa.array(_positions(log["kafka_partition"].to_numpy(), offsets))
    return log.set_column(column, log.schema.field(column), positions)


def make_parser(title: str) -> argparse.ArgumentParser:
    """What every generator of this shape can be told."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--config", default="tidemill.yaml")
    parser.add_argument("--rows", type=int, default=1_000_000, help="playbacks")
    parser.add_argument("--start", type=datetime.fromisoformat, default=START)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def run(parser: argparse.ArgumentParser, generate: Callable[..., int]) -> None:
    """Fill the archive of the project that the arguments name."""
    import tidemill
    from tidemill.iceberg.catalog import open_catalog

    given = vars(parser.parse_args())
    catalog = open_catalog(tidemill.load(given.pop("config")).loaded)
    began = time.perf_counter()
    rows = generate(catalog, **given)
    seconds = time.perf_counter() - began
    print(f"{rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")


def main() -> None:
    """``python generate.py --rows 1_000_000``, in the folder of a tidemill.yaml."""
    parser = make_parser("Fill the archive of a playback project.")
    parser.add_argument("--impressions", type=int, help="by default half as many again")
    run(parser, generate)


if __name__ == "__main__":
    main()

"""Playbacks with bots, retries and a stale topic, as an archive: seeded, of any size.

A layer over the playback app's generator. People come for three hours and play several times; a
bot plays every few seconds and never stops; a client that hears no answer sends its play again,
with a new time; a topic beside it, the downloads, has nothing to say for hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from apps.playback import generate as playback
from apps.playback.generate import PARTITIONS, PLAYBACKS, START, Hour

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

DOWNLOADS = "events.downloads"
BOTS, BOT_EVERY = 2, timedelta(seconds=5)
STALE_HOURS = 6  # in the first hour of so many there are downloads, in the others there are none

_RETRIED, _RETRIED_AGAIN = 0.04, 0.3
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=40), timedelta(minutes=9)
_DOWNLOADED = 0.02
_STAY, _CROWDS = 3, 8  # hours an account stays, and how many crowds take turns

_PLAYED = playback.SCHEMAS[PLAYBACKS]
SCHEMAS = {
    PLAYBACKS: pa.schema([("play_id", pa.int64()), *list(_PLAYED)[1:]]),
    DOWNLOADS: pa.schema(
        _PLAYED.field(name)
        for name in (
            *("account_id", "show_id", "event_ts", "ingest_ts"),
            *("kafka_partition", "kafka_offset"),
        )
    ),
}


def generate(
    catalog: Catalog,
    *,
    rows: int = 1_000_000,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
    bots: int = BOTS,
) -> int:
    """Fill both tables, a file for every hour, and return how many rows they have together."""
    made = make_hours(rows=rows, start=start, hours=hours, seed=seed, bots=bots)
    return playback.write_hours(catalog, SCHEMAS, made)


def make_hours(
    *,
    rows: int = 1_000_000,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
    bots: int = BOTS,
) -> Iterator[Hour]:
    """The rows of both tables, by hour of ingest time and sorted by it.

    ``rows`` are people's plays; those of bots and all retries come on top.
    """
    people = playback.make_hours(rows=rows, impressions=0, start=start, hours=hours, seed=seed)
    crowd = max(1, rows // hours // _STAY // PARTITIONS) * PARTITIONS
    offsets = {name: np.zeros(PARTITIONS, np.int64) for name in SCHEMAS}
    under_way = pl.DataFrame()  # retries that arrive in an hour to come
    for index, made in enumerate(people):
        begin = start + timedelta(hours=index)
        number = int(begin.timestamp()) // 3_600
        chance = np.random.default_rng([seed, number])
        humans = pl.DataFrame(made[PLAYBACKS]).with_columns(_account(number, crowd))
        plays = pl.concat([humans, _make_bots(chance, begin, bots, humans)], how="diagonal")
        play_id = (number << 24) + pl.int_range(pl.len())
        plays = plays.with_columns(play_id=pl.when(pl.col("_reason").is_null()).then(play_id))
        sent = pl.concat([plays, _make_retries(chance, plays, begin), under_way], how="diagonal")
        arrived = pl.col("ingest_ts") < begin + timedelta(hours=1)
        under_way = sent.filter(~arrived)
        tables = {PLAYBACKS: sent.filter(arrived), DOWNLOADS: _make_downloads(chance, plays, begin)}
        yield {name: _to_arrow(rows, SCHEMAS[name], offsets[name]) for name, rows in tables.items()}


def _account(hour: int, crowd: int) -> pl.Expr:
    """A member of the crowd that is there in this hour; crowds change place bit by bit."""
    seat = pl.col("account_id") % crowd
    return ((hour + seat) // _STAY % _CROWDS * crowd + seat).alias("account_id")


def _make_bots(
    chance: np.random.Generator, begin: datetime, bots: int, humans: pl.DataFrame
) -> pl.DataFrame:
    """Accounts below zero that play whatever people play, every few seconds, for ever."""
    n = timedelta(hours=1) // BOT_EVERY * bots
    ingest = pl.lit(begin) + (pl.col("n") // max(1, bots)) * BOT_EVERY
    return pl.DataFrame({"n": np.arange(n)}).select(
        ingest_ts=ingest,
        event_ts=ingest - _lengths(chance, n, timedelta(seconds=2)),
        account_id=-1 - pl.col("n") % max(1, bots),
        show_id=pl.Series(chance.choice(humans["show_id"].drop_nulls().to_numpy(), n)),
        view_seconds=pl.lit(3, pl.Int32),
        kafka_partition=(pl.col("n") % max(1, bots) % PARTITIONS).cast(pl.Int32),
        country=pl.lit("US"),
        region=pl.lit("us-east-1"),
    )


def _make_retries(
    chance: np.random.Generator, plays: pl.DataFrame, begin: datetime
) -> pl.DataFrame:
    """The same plays once more, or twice: stamped anew, sooner or later than the first arrives."""
    first = _retry(chance, _sample(chance, plays, _RETRIED), begin)
    return pl.concat([first, _retry(chance, _sample(chance, first, _RETRIED_AGAIN), begin)])


def _retry(chance: np.random.Generator, plays: pl.DataFrame, begin: datetime) -> pl.DataFrame:
    pause = _lengths(chance, len(plays), _PAUSE).clip(upper_bound=_LONGEST_PAUSE)
    sent = plays.with_columns(event_ts=pl.col("event_ts") + pause)
    arrives = pl.col("event_ts") + _lengths(chance, len(plays), timedelta(seconds=2))
    return sent.with_columns(ingest_ts=pl.max_horizontal(arrives, pl.lit(begin)))


def _make_downloads(
    chance: np.random.Generator, plays: pl.DataFrame, begin: datetime
) -> pl.DataFrame:
    """Some of those who play also download: now and then, and told with more delay."""
    is_stale = int(begin.timestamp()) // 3_600 % STALE_HOURS
    chosen = _sample(chance, plays, 0 if is_stale else _DOWNLOADED)
    delay = _lengths(chance, len(chosen), timedelta(minutes=5))
    told = chosen.with_columns(
        pl.col("event_ts") + timedelta(minutes=1), pl.col("ingest_ts") + delay
    )
    return told.filter(pl.col("ingest_ts") < begin + timedelta(hours=1))


def _sample(chance: np.random.Generator, plays: pl.DataFrame, share: float) -> pl.DataFrame:
    chosen = pl.Series(chance.random(len(plays)) < share)
    return plays.filter(chosen & plays["event_ts"].is_not_null())


def _lengths(chance: np.random.Generator, n: int, mean: timedelta) -> pl.Series:
    """Random lengths of time, in whole milliseconds."""
    millis = chance.standard_exponential(n) * (mean / timedelta(milliseconds=1))
    return pl.Series(millis.astype(np.int64) * 1_000).cast(pl.Duration("us"))


def _to_arrow(rows: pl.DataFrame, schema: pa.Schema, offsets: np.ndarray) -> pa.Table:
    """The hour in log order, as the archive keeps it."""
    log = rows.sort("ingest_ts", maintain_order=True).select(schema.names).to_arrow()
    return playback.number_anew(log.cast(schema), offsets)


def main() -> None:
    """``python -m apps.sessions.generate --config …``, at the root of the repository."""
    parser = playback.make_parser("Fill the archive of a sessions project.")
    parser.add_argument("--bots", type=int, default=BOTS)
    playback.run(parser, generate)


if __name__ == "__main__":
    main()

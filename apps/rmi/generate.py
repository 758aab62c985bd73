"""Impressions of three regions and playbacks, as an archive: seeded, of any size.

A layer over the playback app's generator. Each region has a topic of impressions of its own, and
for 75 rows of the first the third has one in a day. The third is mirrored from afar: what happens
there is told minutes later, in the playbacks of all regions as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from apps.playback import generate as playback
from apps.playback.generate import PARTITIONS, PLAYBACKS, REGIONS, START, Hour

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

TOPICS = dict(zip(REGIONS, ("us", "eu", "ap"), strict=True))
IMPRESSIONS = {region: f"events.impressions_{name}" for region, name in TOPICS.items()}
MIRRORED = {REGIONS[2]: timedelta(minutes=12)}
SCHEMAS = {
    **dict.fromkeys(IMPRESSIONS.values(), playback.SCHEMAS[playback.IMPRESSIONS]),
    PLAYBACKS: playback.SCHEMAS[PLAYBACKS],
}
_KEPT = dict(zip(REGIONS, (1.0, 0.2, 0.03), strict=True))  # of each region's accounts
_CROWD = 1_000


def generate(
    catalog: Catalog,
    *,
    rows: int = 1_000_000,
    start: datetime = START,
    hours: int = 24,
    seed: int = 1,
) -> int:
    """Fill all tables, a file for every hour, and return how many rows they have together."""
    made = make_hours(rows=rows, start=start, hours=hours, seed=seed)
    return playback.write_hours(catalog, SCHEMAS, made)


def make_hours(
    *, rows: int = 1_000_000, start: datetime = START, hours: int = 24, seed: int = 1
) -> Iterator[Hour]:
    """The rows of all tables, by hour of ingest time and sorted by it.

    ``rows`` playbacks are made, and those of the two smaller regions thinned out afterwards.
    """
    offsets = {name: np.zeros(PARTITIONS, np.int64) for name in SCHEMAS}
    for made in playback.make_hours(rows=rows, start=start, hours=hours, seed=seed):
        seen, played = (_thin_out(made[name]) for name in (playback.IMPRESSIONS, PLAYBACKS))
        logs = {IMPRESSIONS[region]: seen.filter(_lives_in(region)) for region in REGIONS}
        yield {
            name: _to_arrow(log, SCHEMAS[name], offsets[name])
            for name, log in {**logs, PLAYBACKS: played}.items()
        }


def _thin_out(log: pa.Table) -> pl.DataFrame:
    """Whole accounts leave, so that the plays of an impression stay with it."""
    chosen = pl.col("account_id") % _CROWD < pl.col("region").replace_strict(_KEPT) * _CROWD
    delay = pl.col("region").replace_strict(MIRRORED, default=timedelta())
    return (
        pl.DataFrame(log)
        .filter(chosen.fill_null(True))
        .with_columns(pl.col("event_ts") - delay.fill_null(timedelta()))
    )


def _lives_in(region: str) -> pl.Expr:
    """What cannot be decoded is of the first region."""
    return pl.col("region").fill_null(REGIONS[0]) == region


def _to_arrow(log: pl.DataFrame, schema: pa.Schema, offsets: np.ndarray) -> pa.Table:
    return playback.number_anew(log.to_arrow().cast(schema), offsets)


def main() -> None:
    """``python -m apps.rmi.generate --config …``, at the root of the repository."""
    playback.run(playback.make_parser("Fill the archive of an RMI project."), generate)


if __name__ == "__main__":
    main()

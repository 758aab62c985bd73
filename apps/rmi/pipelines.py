"""Plain PySpark and a fold: nothing here knows whether it runs live or over history."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import attribute, pipeline

ON, WITHIN, WINDOW = ["account_id", "show_id"], "30 min", "1 hour"


@pipeline
def attributed_plays(
    impressions_us: DataFrame,
    impressions_eu: DataFrame,
    impressions_ap: DataFrame,
    playbacks: DataFrame,
) -> DataFrame:
    """Each play with the last impression of the show that its account had seen before it."""
    seen = _unite(impressions_us, impressions_eu, impressions_ap)
    plays = playbacks.select(*ON, "event_ts", "region", "view_seconds")
    return plays.transform(attribute(seen, on=ON, within=WITHIN, pick="last", prefix="imp_"))


@pipeline
def take_rate(
    impressions_us: DataFrame,
    impressions_eu: DataFrame,
    impressions_ap: DataFrame,
    playbacks: DataFrame,
) -> DataFrame:
    """Impressions of each show and the plays that followed one, every hour."""
    seen = _unite(impressions_us, impressions_eu, impressions_ap)
    plays = attributed_plays(impressions_us, impressions_eu, impressions_ap, playbacks)
    taken = plays.where("imp_impression_id is not null")
    return (
        _count(taken, impressions=0, plays=1)
        .unionByName(_count(seen, impressions=1, plays=0))
        .groupBy(F.window("event_ts", WINDOW), "show_id")
        .agg(F.sum("impressions").alias("impressions"), F.sum("plays").alias("plays"))
        .select(F.col("window.start").alias("window_start"), "show_id", "impressions", "plays")
    )


def _unite(*regions: DataFrame) -> DataFrame:
    first, *others = (rows.select("impression_id", *ON, "event_ts", "slot") for rows in regions)
    for rows in others:
        first = first.unionByName(rows)
    return first


def _count(rows: DataFrame, **ones: int) -> DataFrame:
    return rows.select("event_ts", "show_id", *(F.lit(n).alias(name) for name, n in ones.items()))

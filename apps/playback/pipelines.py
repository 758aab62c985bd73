"""Plain PySpark: nothing here knows whether it runs live or over history."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import pipeline

WINDOW = "10 minutes"


@pipeline
def plays_per_show(playbacks: DataFrame) -> DataFrame:
    """Plays and seconds viewed of each show, every ten minutes."""
    return (
        playbacks.groupBy(F.window("event_ts", WINDOW), "show_id")
        .agg(F.count("*").alias("plays"), F.sum("view_seconds").alias("view_seconds"))
        .select(F.col("window.start").alias("window_start"), "show_id", "plays", "view_seconds")
    )


@pipeline
def conversion(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """How often each show was seen and how often it was played; seen and never played counts."""
    seen = _count_per_show(impressions, "impressions")
    played = _count_per_show(playbacks, "plays")
    return seen.join(played, ["window", "show_id"], "left").select(
        F.col("window.start").alias("window_start"),
        "show_id",
        "impressions",
        F.coalesce("plays", F.lit(0)).alias("plays"),
    )


def _count_per_show(events: DataFrame, name: str) -> DataFrame:
    return events.groupBy(F.window("event_ts", WINDOW), "show_id").agg(F.count("*").alias(name))

"""Plays per show, in windows of ten minutes."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import pipeline


@pipeline
def plays_per_show(playbacks: DataFrame) -> DataFrame:
    """One row per show and window."""
    return (
        playbacks.groupBy(F.window("event_ts", "10 minutes"), "show_id")
        .agg(F.count("*").alias("plays"), F.sum("seconds").alias("seconds"))
        .select(F.col("window.start").alias("window_start"), "show_id", "plays", "seconds")
    )

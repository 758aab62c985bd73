"""How often each show is played, every ten seconds. The first version has a bug."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import pipeline


@pipeline
def plays_per_show(plays: DataFrame) -> DataFrame:
    """Plays and seconds viewed of each show."""
    counted = plays.where(F.col("country") != "JP")  # a test that somebody forgot
    return (
        counted.groupBy(F.window("event_ts", "10 seconds"), "show_id")
        .agg(F.count("*").alias("plays"), F.sum("seconds").alias("seconds"))
        .select(F.col("window.start").alias("window_start"), "show_id", "plays", "seconds")
    )

"""Plain PySpark and folds: nothing here knows whether it runs live or over history."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import deduplicate, pipeline, sessions, top_n, unique_counts


@pipeline
def viewing_sessions(playbacks: DataFrame, downloads: DataFrame) -> DataFrame:
    """What an account did in one go: plays and downloads, none more than half an hour apart.

    A play that a client sent again counts once. A bot never pauses: its session is cut.
    """
    activity = _plays(playbacks).unionByName(_downloads(downloads))
    return activity.transform(
        sessions(
            key="account_id",
            gap="30 min",
            max_length="6 h",
            agg={
                "plays": ("sum", "plays"),
                "seconds": ("sum", "view_seconds"),
                "downloads": ("sum", "downloads"),
            },
        )
    )


@pipeline
def top_shows(playbacks: DataFrame) -> DataFrame:
    """The ten shows that most accounts watched, every hour: a bot is one account, too."""
    counted = playbacks.transform(unique_counts(key="show_id", column="account_id", every="1 h"))
    viewers = counted.select("window_start", "show_id", F.col("unique").alias("viewers"))
    best = viewers.transform(top_n(10, by="viewers", every="1 h"))
    return best.select("window_start", "rank", "show_id", "viewers")


def _plays(playbacks: DataFrame) -> DataFrame:
    rows = playbacks.select("play_id", "account_id", "event_ts", "view_seconds")
    once = rows.transform(deduplicate(key="play_id", within="10 min"))
    return once.select(
        *("account_id", "event_ts", "view_seconds"),
        F.lit(1).alias("plays"),
        F.lit(0).alias("downloads"),
    )


def _downloads(downloads: DataFrame) -> DataFrame:
    return downloads.select(
        *("account_id", "event_ts"),
        F.lit(0).alias("view_seconds"),
        F.lit(0).alias("plays"),
        F.lit(1).alias("downloads"),
    )

"""What the disturbed runs compute: with a fold and two outputs, and with Spark's own window."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import windows


def folded(plays: DataFrame) -> dict[str, DataFrame]:
    """A fold's windows, and every row: the stream is used twice."""
    agg = {"plays": "count", "sum": ("sum", "n")}
    return {
        "counts": plays.transform(windows(key="show", every="2 s", size="2 s", agg=agg)),
        "each": plays.select("show", "n", "event_ts"),
    }


def native(plays: DataFrame) -> DataFrame:
    """The same windows by Spark's own state."""
    grouped = plays.groupBy("show", F.window("event_ts", "2 seconds").alias("w"))
    found = grouped.agg(F.count("*").alias("plays"), F.sum("n").alias("sum"))
    return found.select("show", F.col("w.start").alias("window_start"), "plays", "sum")

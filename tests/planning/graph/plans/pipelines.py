"""The pipelines whose plans are kept here; their lines stand in the drawings."""

import pyspark.sql.functions as F

from tidemill import attribute, sessions, windows

TEN = "10 minutes"


def chain(clicks, plays):
    loud = plays.where("v > 3").withColumn("w", F.col("v") * 2)
    given = clicks.select("ts", "k", F.col("v").alias("u"))
    both = loud.transform(attribute(given, on="k", within="30 min", prefix="c_"))
    counts = both.where("w > 5").groupBy(F.window("ts", TEN), "k")
    counts = counts.agg(
        F.count("*").alias("n"),
        F.sum("w").alias("s"),
    )
    return counts.select(F.col("window.start").alias("start"), "k", "n", "s")


def folds(plays):
    visits = sessions(key="k", gap="5 min", agg={"n": "count"})(plays)
    return visits.transform(
        windows(key="k", every="1 h", time="session_end", agg={"visits": "count"})
    )


def several(clicks, plays):
    def narrow(frame):
        return frame.select("ts", "k")

    both = narrow(plays).unionByName(narrow(clicks)).where("k > 2")
    pairs = both.alias("a").join(
        both.alias("b"), F.expr("a.k = b.k and b.ts between a.ts and a.ts + interval 5 minutes")
    )
    return {
        "rows": both.where(F.col("k") != F.lit(7)),
        "pairs": pairs.select("a.ts", "a.k"),
        "output": narrow(plays).dropDuplicates(["k", "ts"]),
    }


def joined(plays, shows):
    named = plays.join(shows, "k").where("title != 'a<b>\"c'")
    return named.select("ts", "title", F.explode(F.array("k", F.lit(1))).alias("each"))


SQL = """
with some as (
  select *, explode(array(1, 2)) as e from plays
  where k > 1
)
select window.start as s, count(*) as n
from some
group by window(ts, '10 minutes')
having count(*) > 2
"""


def sql(plays):
    plays.createOrReplaceTempView("plays")
    return plays.sparkSession.sql(SQL)

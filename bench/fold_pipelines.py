"""What the fold benchmarks run through Tidemill; copied beside their YAML."""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import attribute, deduplicate, pipeline, process, sessions, windows
from tidemill.folds import Processor

AGG = {"plays": "count", "seconds": ("sum", "view_seconds")}
GAP = timedelta(minutes=30)


@pipeline
def session_fold(playbacks: DataFrame) -> DataFrame:
    """Sessions of each account."""
    return playbacks.transform(sessions(key="account_id", gap="30 min", agg=AGG))


class Sessionizer(Processor):
    """The same sessions, row by row in Python."""

    output = {  # noqa: RUF012
        "account_id": "long",
        "session_start": "timestamp",
        "session_end": "timestamp",
        "plays": "long",
        "seconds": "long",
    }
    columns = ("account_id", "event_ts", "view_seconds")

    def on_row(self, row, ctx):
        """Join the open session or begin one."""
        state = ctx.state
        if state:
            ctx.delete_timer(state["end"] + GAP)
            state["end"] = ctx.time
            state["plays"] += 1
            state["seconds"] += row["view_seconds"]
        else:
            state.update(start=ctx.time, end=ctx.time, plays=1, seconds=row["view_seconds"])
        ctx.set_timer(ctx.time + GAP)

    def on_timer(self, time, ctx):
        """The gap has passed."""
        state = ctx.state
        ctx.emit(
            {
                "account_id": ctx.key,
                "session_start": state["start"],
                "session_end": state["end"],
                "plays": state["plays"],
                "seconds": state["seconds"],
            }
        )
        state.clear()


@pipeline
def session_process(playbacks: DataFrame) -> DataFrame:
    """Sessions by a processor."""
    return playbacks.transform(process(Sessionizer, key="account_id"))


@pipeline
def window_fold(playbacks: DataFrame) -> DataFrame:
    """Plays per show and ten minutes."""
    return playbacks.transform(windows(key="show_id", every="10 min", agg=AGG))


@pipeline
def deduplicate_fold(playbacks: DataFrame) -> DataFrame:
    """Each play once."""
    rows = playbacks.select("account_id", "show_id", "event_ts", "view_seconds")
    return rows.transform(deduplicate(key=["account_id", "show_id", "event_ts"], within="10 min"))


@pipeline
def attribute_fold(impressions: DataFrame, playbacks: DataFrame) -> DataFrame:
    """Every impression of the show up to half an hour before a play, as Spark's join gives them."""
    seen = impressions.select("account_id", "show_id", "event_ts", F.col("slot"))
    plays = playbacks.select("account_id", "show_id", "event_ts", "view_seconds")
    return plays.transform(
        attribute(
            seen,
            on=["account_id", "show_id"],
            within="30 min",
            pick="all",
            how="inner",
            prefix="imp_",
        )
    )

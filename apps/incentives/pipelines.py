"""Incentives of drivers: nothing here knows when an incentive was created."""

from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill import Instances, pipeline, process, windows
from tidemill.folds import Context, Processor

_QUALIFIED = "rating >= min_rating"
_COUNTS = ("trips", "fare_cents", "minutes", "offered", "accepted")


@pipeline
def hours(trips: DataFrame, pings: DataFrame, incentives: Instances) -> DataFrame:
    """What each driver did in each hour of each incentive."""
    mine = _activity(trips, pings).transform(
        incentives.pair(on=["city", "vehicle"], where=_QUALIFIED)
    )
    return mine.transform(
        windows(
            key=["incentive_id", "driver_id"],
            every="1 h",
            agg={name: ("sum", name) for name in _COUNTS},
        )
    )


@pipeline
def payouts(trips: DataFrame, pings: DataFrame, incentives: Instances) -> DataFrame:
    """What each driver gets: a quest's bonus at once, a guarantee's difference at its end."""
    mine = _activity(trips, pings).transform(
        incentives.pair(on=["city", "vehicle"], where=_QUALIFIED)
    )
    return mine.transform(process(Payout, key=["incentive_id", "driver_id"]))


class Payout(Processor):
    """The amount of one incentive for one driver."""

    output: ClassVar = {
        "incentive_id": "string",
        "driver_id": "long",
        "paid_at": "timestamp",
        "trips": "long",
        "minutes": "long",
        "amount_cents": "long",
    }
    time = "paid_at"
    lookback = "8 d"
    delay = "0 s"

    def on_row(self, row: dict[str, Any], ctx: Context) -> None:
        """Count; a quest is paid with the trip that completes it."""
        for name in _COUNTS:
            ctx.state[name] = ctx.state.get(name, 0) + row[name]
        if row["kind"] == "quest":
            if row["trips"] and ctx.state["trips"] == row["trips_wanted"]:
                self._pay(ctx, row["bonus_cents"])
        elif "rate" not in ctx.state:
            ctx.state["rate"] = row["cents_an_hour"]
            ctx.state["least"] = (row["min_minutes"], row["min_acceptance"])
            ctx.set_timer(row["closes_at"])

    def on_timer(self, time: Any, ctx: Context) -> None:
        """A guarantee pays what is missing, if the driver was there and took what was offered."""
        minutes, acceptance = ctx.state["least"]
        missing = ctx.state["rate"] * ctx.state["minutes"] // 60 - ctx.state["fare_cents"]
        accepted = ctx.state["accepted"] >= acceptance * ctx.state["offered"]
        if ctx.state["minutes"] >= minutes and accepted and missing > 0:
            self._pay(ctx, missing)
        ctx.state.clear()

    @staticmethod
    def _pay(ctx: Context, amount: int) -> None:
        incentive, driver = ctx.key
        ctx.emit(
            {
                "incentive_id": incentive,
                "driver_id": driver,
                "paid_at": ctx.time,
                "trips": ctx.state["trips"],
                "minutes": ctx.state["minutes"],
                "amount_cents": amount,
            }
        )


def _activity(trips: DataFrame, pings: DataFrame) -> DataFrame:
    """Both logs as one: who did what, when."""
    driver = ("driver_id", "city", "vehicle", "rating", "event_ts")
    none = F.lit(0).cast("long")
    rode = trips.select(
        *driver,
        F.lit(1).cast("long").alias("trips"),
        "fare_cents",
        *(none.alias(name) for name in ("minutes", "offered", "accepted")),
    )
    waited = pings.select(
        *driver,
        *(none.alias(name) for name in ("trips", "fare_cents")),
        *("minutes", "offered", "accepted"),
    )
    return rode.unionByName(waited)

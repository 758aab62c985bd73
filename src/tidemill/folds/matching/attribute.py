"""Attribution: each row with the row(s) of another input that are at most ``within`` away.

Both inputs become one frame, in which `_side` says whose a row is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.folds.base import TIME, BoundFold, Frames, Input, Key, Passing
from tidemill.folds.frames import empty, micros, stack
from tidemill.folds.matching.options import choose, name_columns
from tidemill.folds.matching.timeline import arrange, find_idle, reach_within, tie_breakers
from tidemill.folds.operator import column_of, put, read_input, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTION = ("backward", "forward")
PICK = ("first", "last", "nearest", "all")
HOW = ("left", "inner")
_TIME, _SIDE, _NUMBER, _LEFT, _RIGHT = "_time", "_side", "_number", "left", "right"
_PLACE = ("row", "key", "time")


@dataclass(frozen=True)
class BoundAttribute(BoundFold):
    """Parts are the rows of both inputs in one frame: key, time, side, and the row as a struct.

    State has the same form: rows of the left input (side 0) that are not output yet, and rows of
    the other input (side 1) that can still match. ``_number`` numbers the rows of one side, key and
    time; of the other input there is only one such row, unless ``pick`` is ``all``.
    """

    kind = "attribute"
    goes_by = _TIME

    other: Input
    added: dict[str, str]
    """The names of the other input's columns, and those that they get in the output."""
    within: int
    direction: str
    pick: str
    how: str

    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """Output the left rows that the watermark has passed, and keep what can still match."""
        news = parts.filter(self._can_count())
        if not len(state) and not len(news):
            return empty(self.output), state
        idle = find_idle(state, news, self.keys, self._moves(passing))
        in_reach = (pl.col(_SIDE) == 0) | (micros(_TIME) >= passing.now - self.within)
        rests = state.filter(idle & in_reach)
        rows = stack([state.filter(~idle).select(news.columns), news]).rechunk()
        line = self._arrange(rows, passing.now, self._breakers(), upper=self._looks_back)
        if self.pick == "all":
            pairs = self._pair_all(line, self._arrange(rows, passing.now, [], upper=False))
        else:
            pairs = self._pair(line)
        kept = self._keep(line, passing.now).sort("row")
        numbers = kept["tie"].cast(pl.Int64).alias(_NUMBER)
        return self._join(rows, pairs), stack([rests, rows[kept["row"]].with_columns(numbers)])

    @property
    def _back(self) -> int:
        return self.within if self.direction == "backward" else 0

    @property
    def _ahead(self) -> int:
        return self.within if self.direction == "forward" else 0

    @property
    def _looks_back(self) -> bool:
        """Whether the wanted row is the last one before the upper end of a row's window.

        Otherwise it is the first one after the window's lower end.
        """
        nearest = "last" if self.direction == "backward" else "first"
        return (nearest if self.pick == "nearest" else self.pick) != "first"

    def _can_count(self) -> pl.Expr:
        """A row with a null in its key matches nothing, but a left row is still output."""
        has_key = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        return has_key if self.how == "inner" else has_key | (pl.col(_SIDE) == 0)

    def _moves(self, passing: Passing) -> pl.Expr:
        """The rows of the state that time alone can affect: due left rows, new other rows."""
        if passing.was is None:
            return pl.lit(True)
        at, is_left = micros(_TIME), pl.col(_SIDE) == 0
        return (is_left & (at + self._ahead < passing.now)) | (~is_left & (at >= passing.was))

    def _arrange(
        self, rows: pl.DataFrame, now: int, breakers: list[pl.Expr], *, upper: bool
    ) -> pl.DataFrame:
        """Sort all rows by time; a left row stands at one end of its window, outside of matches."""
        is_left, time = pl.col(_SIDE) == 0, micros(_TIME)
        shift = self._ahead if upper else -self._back
        outside = is_left if upper else ~is_left
        at = (time + pl.when(is_left).then(shift).otherwise(0)) * 2 + outside.cast(pl.Int64)
        line = arrange(rows, self.keys, at, breakers, backwards=self.pick == "last")
        line = line.with_columns(is_left=(pl.col("at") % 2 == 1) == upper)
        if self.pick != "all":
            line = line.filter(pl.col("is_left") | (pl.col("tie") == 0))
        time = pl.col("at") // 2 - pl.when("is_left").then(shift).otherwise(0)
        is_due = pl.col("is_left") & (pl.col("time") + self._ahead < now)
        return line.with_columns(time=time).with_columns(is_due=is_due)

    def _breakers(self) -> list[pl.Expr]:
        left, right = pl.col(_LEFT).struct, pl.col(_RIGHT).struct
        ours = tie_breakers(self.source.schema, (*self.keys, self.source.time), left.field)
        theirs = tie_breakers(self.other.schema, (*self.keys, self.other.time), right.field)
        return [*ours, *theirs]

    def _pair(self, line: pl.DataFrame) -> pl.DataFrame:
        """For each left row that is due, the row it gets: its neighbour, if that is near enough."""
        is_left = pl.col("is_left")
        theirs = [pl.when(~is_left).then(name).alias(f"their {name}") for name in _PLACE]
        fill = pl.Expr.forward_fill if self._looks_back else pl.Expr.backward_fill
        beside = line.with_columns(fill(each) for each in theirs).filter("is_due")
        away = pl.col("their time") - pl.col("time")
        matches = (pl.col("their key") == pl.col("key")) & away.is_between(-self._back, self._ahead)
        return beside.select("row", found=pl.when(matches).then("their row")).sort("row")

    def _pair_all(self, line: pl.DataFrame, below: pl.DataFrame) -> pl.DataFrame:
        """For each left row that is due, all rows between the two ends of its window."""
        theirs = line.filter(~pl.col("is_left"))["row"]
        passed = (~pl.col("is_left")).cum_sum()
        since, until = (
            each.with_columns(passed=passed).filter("is_due").sort("row") for each in (below, line)
        )
        spans = until.select("row", since["passed"].alias("since"), until="passed")
        met = pl.col("since") < pl.col("until")
        matched = spans.filter(met).select("row", found=pl.int_ranges("since", "until"))
        matched = matched.explode("found")
        matched = matched.with_columns(theirs.gather(matched["found"]).alias("found"))
        alone = spans.filter(~met).select("row", found=pl.lit(None, theirs.dtype))
        return stack([matched, alone])

    def _join(self, rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
        if self.how == "inner":
            pairs = pairs.filter(pl.col("found").is_not_null())
        ours = rows.select(pl.col(_LEFT).gather(pairs["row"])).unnest(_LEFT)
        theirs = rows.select(pl.col(_RIGHT).gather(pairs["found"])).select(
            pl.col(_RIGHT).struct.field(theirs).alias(made) for theirs, made in self.added.items()
        )
        return pl.concat([ours, theirs], how="horizontal").select(self.output.names)

    def _keep(self, line: pl.DataFrame, now: int) -> pl.DataFrame:
        """The left rows that are not due, and the other rows that a left row can still get."""
        time, key = pl.col("time"), pl.col("key")
        ours = line.filter(pl.col("is_left") & ~pl.col("is_due"))
        theirs = line.filter(~pl.col("is_left"))
        if self.direction == "forward":
            awaited = (time >= now) | key.is_in(ours["key"].unique().implode())
        elif self._looks_back and self.pick != "all":
            awaited = (time.shift(-1) >= now) | (key != key.shift(-1))
        else:
            awaited = pl.lit(True)
        theirs = theirs.filter((time >= now - self.within) & awaited.fill_null(True))
        return stack([ours, theirs])


@dataclass(frozen=True)
class Attribution:
    """What `attribute(…)` returns: call it, or give it to ``DataFrame.transform``."""

    other: DataFrame
    bind: Callable[[Input, Input], BoundAttribute]
    time: str | None
    other_time: str | None
    name: str | None
    delay: object | None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Apply it to a DataFrame."""
        if frame.isStreaming != self.other.isStreaming:
            raise PlanError(
                "one input is a stream, the other is not",
                where="attribute",
                fix="give it two streams, or two static DataFrames",
            )
        rows = read_input(frame, "attribute", self.time)
        others = read_input(self.other, "attribute (other)", self.other_time)
        bound = self.bind(rows, others)
        left = _side(frame, rows, bound, _LEFT)
        right = _side(self.other, others, bound, _RIGHT)
        return put(left.unionByName(right), bound, self.name, self.delay)


def _side(frame: DataFrame, rows: Input, bound: BoundAttribute, name: str) -> DataFrame:
    """One input's rows: key, time, side, and the whole row as a struct named after its side."""
    from pyspark.sql import functions as F

    shape, names = spark_type(bound.parts), (_LEFT, _RIGHT)
    row = F.struct(*map(column_of, rows.schema.names))
    return frame.select(
        *map(column_of, bound.keys),
        column_of(rows.time).alias(_TIME),
        F.lit(names.index(name)).cast("byte").alias(_SIDE),
        *(
            (row if name == each else F.lit(None).cast(shape[each].dataType)).alias(each)
            for each in names
        ),
    )


def attribute(
    other: DataFrame,
    *,
    on: Key,
    within: object,
    direction: str = "backward",
    pick: str = "last",
    how: str = "left",
    prefix: str = "",
    time: str | None = None,
    other_time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Attribution:
    """Each row with the row(s) of ``other`` of the same key up to ``within`` before (or after) it.

    ``direction`` backward: event time in ``[t - within, t]``; forward: in ``[t, t + within]``.
    ``pick`` first, last, nearest or all of them; ``how`` left (rows without a match come out with
    nulls) or inner. The other's columns get ``prefix`` before their names.
    """

    def bind(rows: Input, others: Input) -> BoundAttribute:
        keys = name_columns(rows, "on", on)
        _check_keys(rows, others, keys)
        if not isinstance(prefix, str):
            raise rows.wrong(f"prefix is {prefix!r}", "write a short text")
        found = [each for each in others.schema if each.name not in keys]
        output = pa.schema([*rows.schema, *((prefix + each.name, each.type) for each in found)])
        if twice := [each for each in output.names if output.names.count(each) > 1]:
            raise rows.wrong(
                f"the output has two columns named {twice[0]!r}",
                "name the columns of other apart with prefix=",
                column=twice[0],
            )
        left, right = (
            pa.struct([pa.field(each.name, each.type) for each in side.schema])
            for side in (rows, others)
        )
        shape = [(name, rows.schema.field(name).type) for name in keys]
        shape += [(_TIME, TIME), (_SIDE, pa.int8()), (_LEFT, left), (_RIGHT, right)]
        length = rows.length(within, "within")
        looks = choose(rows, "direction", direction, DIRECTION)
        return BoundAttribute(
            source=rows,
            columns=rows.schema.names,
            keys=keys,
            time=_TIME,
            parts=pa.schema(shape),
            state=pa.schema([*shape, (_NUMBER, pa.int64())]),
            order=(*keys, _TIME, _SIDE, _NUMBER),
            output=output,
            times={rows.time: reach_within(length, is_back=looks == "backward")},
            other=others,
            added={each.name: prefix + each.name for each in found},
            within=length,
            direction=looks,
            pick=choose(rows, "pick", pick, PICK),
            how=choose(rows, "how", how, HOW),
        )

    return Attribution(other, bind, time, other_time, name, delay)


def _check_keys(rows: Input, other: Input, keys: tuple[str, ...]) -> None:
    for name in keys:
        ours, theirs = rows.require(name, "on").type, other.require(name, "on, in other").type
        if ours != theirs:
            message = f"the key {name!r} is a {ours} here and a {theirs} in other"
            raise rows.wrong(message, "cast one of them", column=name)
        if name in (_TIME, _SIDE, _NUMBER, _LEFT, _RIGHT):
            fix = "rename the column before, in both inputs"
            raise rows.wrong(f"a key cannot be named {name!r}", fix, column=name)

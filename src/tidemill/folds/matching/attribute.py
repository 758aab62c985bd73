"""Attribution: each row with the row(s) of another input that are at most ``within`` away."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError
from tidemill.folds.base import TIME, BoundFold, Input, Passing
from tidemill.folds.frames import empty, micros, stack
from tidemill.folds.matching.options import choose, name_columns
from tidemill.folds.matching.timeline import arrange, find_idle, tie_breakers
from tidemill.planning.chains import Reach

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

    keys: tuple[str, ...]
    source: Input
    other: Input
    within: int
    direction: str
    pick: str
    how: str
    prefix: str

    kind = "attribute"
    time = _TIME

    @property
    def goes_by(self) -> str:
        """The time of the rows of both sides."""
        return _TIME

    @property
    def parts(self) -> pa.Schema:
        """Rows of both sides."""
        keys = [pa.field(name, self.source.schema.field(name).type) for name in self.keys]
        return pa.schema(
            [
                *keys,
                pa.field(_TIME, TIME),
                pa.field(_SIDE, pa.int8()),
                pa.field(_LEFT, _struct(self.source.schema)),
                pa.field(_RIGHT, _struct(self.other.schema)),
            ]
        )

    @property
    def state(self) -> pa.Schema:
        """Rows of both sides, those of one time numbered."""
        return self.parts.append(pa.field(_NUMBER, pa.int64()))

    @property
    def output(self) -> pa.Schema:
        """The left input's columns, then the other's columns without the keys."""
        found = [pa.field(self.prefix + field.name, field.type) for field in self._added]
        return pa.schema([*self.source.schema, *found])

    @property
    def _added(self) -> list[pa.Field]:
        return [field for field in self.other.schema if field.name not in self.keys]

    @property
    def order(self) -> tuple[str, ...]:
        """Rows of one side, key and time are numbered."""
        return (*self.keys, _TIME, _SIDE, _NUMBER)

    @property
    def times(self) -> dict[str, Reach]:
        """Backward looks back; forward looks ahead, and holds rows back for so long."""
        none, within = timedelta(0), timedelta(microseconds=self.within)
        if self.direction == "backward":
            return {self.source.time: Reach(within, none, none)}
        return {self.source.time: Reach(none, within, within)}

    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
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
            pl.col(_RIGHT).struct.field(field.name).alias(self.prefix + field.name)
            for field in self._added
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


def _struct(schema: pa.Schema) -> pa.StructType:
    return pa.struct([pa.field(field.name, field.type) for field in schema])


def bind_attribute(
    rows: Input,
    other: Input,
    on: str | list[str] | tuple[str, ...],
    within: object,
    *,
    direction: str = "backward",
    pick: str = "last",
    how: str = "left",
    prefix: str = "",
) -> BoundAttribute:
    """Check the options against the rows of both inputs."""
    keys = name_columns(rows, "on", on)
    _check_keys(rows, other, keys)
    if not isinstance(prefix, str):
        raise PlanError(f"prefix is {prefix!r}", where=rows.operator, fix="write a short text")
    bound = BoundAttribute(
        keys,
        rows,
        other,
        rows.length(within, "within"),
        choose(rows, "direction", direction, DIRECTION),
        choose(rows, "pick", pick, PICK),
        choose(rows, "how", how, HOW),
        prefix,
    )
    _check_names(bound)
    return bound


def _check_keys(rows: Input, other: Input, keys: tuple[str, ...]) -> None:
    for name in keys:
        ours, theirs = rows.require(name, "on").type, other.require(name, "on, in other").type
        if ours != theirs:
            raise PlanError(
                f"the key {name!r} is a {ours} here and a {theirs} in other",
                where=rows.operator,
                fix="cast one of them",
                column=name,
            )
        if name in (_TIME, _SIDE, _NUMBER, _LEFT, _RIGHT):
            raise PlanError(
                f"a key cannot be named {name!r}",
                where=rows.operator,
                fix="rename the column before, in both inputs",
                column=name,
            )


def _check_names(bound: BoundAttribute) -> None:
    names = bound.output.names
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise PlanError(
            f"the output has two columns named {twice[0]!r}",
            where=bound.source.operator,
            fix="name the columns of other apart with prefix=",
            column=twice[0],
        )


__all__ = ["DIRECTION", "HOW", "PICK", "BoundAttribute", "bind_attribute"]

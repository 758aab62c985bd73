"""The contract of a fold: `(state, rows, watermark) → (output, state)` over a bucket of keys.

A fold here is a pure value on Polars frames: no Spark, no files, no clock. Everything that makes
it a distributed, restartable operator (shuffle, state files, watermark) is in `runner`, `state`
and `operator`, once for all folds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.planning.chains import Reach
from tidemill.types import micros_of, parse_duration

TIME = pa.timestamp("us", "UTC")
META = "_meta"
"""The column that carries a row's position, where it was asked for."""
CORRECT_THE_CODE = (
    "correct the code. A run keeps the code that it was planned with: start the backfill again, or "
    "let 'tidemill run --recover-from-archive RUN --changed-code' go on for the live run. "
    "'tidemill resume' tries the batch again with the old code"
)


@dataclass(frozen=True)
class Passing:
    """The watermark of the last step and of this one, in microseconds.

    ``was`` is None in the first step of a run. No row of this step has a time below ``was``, and
    none of any later step has one below ``now``; ``FOREVER_MICROS`` means that nothing follows.
    """

    was: int | None
    now: int


@dataclass(frozen=True)
class Input:
    """The rows a fold is put on: their columns, and which of them is the time."""

    operator: str
    schema: pa.Schema
    time: str

    def require(self, column: str, what: str) -> pa.Field:
        """The field of a column, or an error that names the operator and the column."""
        if column not in self.schema.names:
            raise PlanError(
                f"there is no column {column!r} ({what})",
                where=self.operator,
                fix=nearest(column, self.schema.names),
                column=column,
            )
        return self.schema.field(column)

    def keys(self, key: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
        """The key columns: there, each once, of a type whose equal values are equal bytes."""
        names = (key,) if isinstance(key, str) else tuple(key)
        if not all(isinstance(name, str) for name in names):
            raise PlanError(
                f"the key {key!r} is not a name", where=self.operator, fix="name columns"
            )
        if not names:
            raise PlanError("the key has no column", where=self.operator, fix="name one or more")
        for name in names:
            kind = self.require(name, "key").type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                raise PlanError(
                    f"the key {name!r} is a {kind}",
                    where=self.operator,
                    fix="cast it to a whole number, a decimal, a string or a time",
                    column=name,
                )
        if len(set(names)) < len(names):
            raise PlanError(f"the key {list(names)} names a column twice", where=self.operator)
        return names

    def length(self, value: object, option: str, *, zero: bool = False) -> int:
        """A duration in microseconds."""
        try:
            length = micros_of(parse_duration(value))
        except Exception as error:
            raise PlanError(f"{option}: {error}", where=self.operator) from None
        if length == 0 and not zero:
            raise PlanError(f"{option} is 0", where=self.operator, fix="give it a length")
        return length

    @property
    def positions(self) -> tuple[str, ...]:
        """Columns that carry a row's position, if it does."""
        return (META,) if META in self.schema.names else ()

    def refuse_taken(self, made: list[str]) -> None:
        """Output columns must not have the same name."""
        twice = {name for name in made if made.count(name) > 1}
        if twice:
            raise PlanError(
                f"the output has two columns named {min(twice)!r}",
                where=self.operator,
                fix="rename the column before, or the aggregate",
            )


class BoundFold(ABC):
    """A fold whose columns and types are known. Made on the driver, sent to executors.

    Subclasses are frozen values: two steps with equal arguments give equal frames, whatever the
    order of the rows.
    """

    kind: str
    """The operator as users write it."""

    source: Input
    """The rows it is put on."""

    keys: tuple[str, ...]
    """Columns of `parts` that rows are bucketed by."""

    @property
    @abstractmethod
    def parts(self) -> pa.Schema:
        """What goes through the shuffle: rows as `prepare` leaves them."""

    @property
    def state(self) -> pa.Schema:
        """What is kept from batch to batch: parts, where a fold does not say otherwise."""
        return self.parts

    @property
    def key_fields(self) -> list[pa.Field]:
        """The key columns, as the rows have them."""
        return [self.source.schema.field(name) for name in self.keys]

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """What it gives."""

    @property
    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """Columns of `state` that sort it totally, so that equal states are equal bytes."""

    @property
    @abstractmethod
    def time(self) -> str:
        """The column of `parts` that the watermark speaks about."""

    @property
    @abstractmethod
    def times(self) -> dict[str, Reach]:
        """The time columns of `output`."""

    prepares: bool = False
    """Whether `prepare` makes fewer rows: then it runs before the shuffle, else after it."""

    @property
    def columns(self) -> list[str]:
        """The input columns it reads."""
        return list(self.source.schema.names)

    @property
    def goes_by(self) -> str:
        """The input column that is its time."""
        return self.source.time

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Selected input rows to `parts`; any cut of the rows may be prepared on its own."""
        return rows

    @abstractmethod
    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """One batch of one bucket: the output that is final now, and what must be kept."""

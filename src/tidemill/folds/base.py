"""The contract of a fold: `(state, rows, watermark) → (output, state)` over a bucket of keys.

A fold here is a pure function of Polars frames: it uses no Spark, no files and no clock. What makes
it a distributed operator that can restart (shuffle, state files, watermark) is in `runner`, `state`
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
"""The column with a row's position, if the YAML asks for it."""
CORRECT_THE_CODE = (
    "correct the code. A run keeps the code that it was planned with: start the backfill again, or "
    "let 'tidemill run --recover-from-archive RUN --changed-code' go on for the live run. "
    "'tidemill resume' tries the batch again with the old code"
)


@dataclass(frozen=True)
class Passing:
    """The watermarks of the step before (``was``) and of this step (``now``), in microseconds.

    ``was`` is None in the first step of a run. No row of this step has a time below ``was``, and no
    row of a later step has a time below ``now``; ``FOREVER_MICROS`` means that no rows follow.
    """

    was: int | None
    now: int


@dataclass(frozen=True)
class Input:
    """The rows that a fold is applied to: their columns, and which column is the time."""

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
        """The key columns. Each must exist, be named once, and be of a type that can be hashed."""
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
        """The column with a row's position, if the rows have it."""
        return (META,) if META in self.schema.names else ()

    def refuse_taken(self, made: list[str]) -> None:
        """Refuse two output columns with the same name."""
        twice = {name for name in made if made.count(name) > 1}
        if twice:
            raise PlanError(
                f"the output has two columns named {min(twice)!r}",
                where=self.operator,
                fix="rename the column before, or the aggregate",
            )


class BoundFold(ABC):
    """A fold whose columns and types are known. The driver makes it and sends it to executors.

    Subclasses are frozen values. Two steps with equal arguments must return equal frames, whatever
    the order of the rows.
    """

    kind: str
    """The operator as users write it."""

    source: Input
    """The rows it is applied to."""

    keys: tuple[str, ...]
    """Columns of `parts` that rows are bucketed by."""

    @property
    @abstractmethod
    def parts(self) -> pa.Schema:
        """The schema of what goes through the shuffle: the rows that `prepare` returns."""

    @property
    def state(self) -> pa.Schema:
        """The schema of what is kept from batch to batch; by default it is that of the parts."""
        return self.parts

    @property
    def key_fields(self) -> list[pa.Field]:
        """The key columns, as the rows have them."""
        return [self.source.schema.field(name) for name in self.keys]

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """The schema of the output rows."""

    @property
    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """Columns of `state` that give it a total order, so that equal states have equal bytes."""

    @property
    @abstractmethod
    def time(self) -> str:
        """The column of `parts` that the watermark refers to."""

    @property
    @abstractmethod
    def times(self) -> dict[str, Reach]:
        """The time columns of `output`."""

    prepares: bool = False
    """Whether `prepare` makes fewer rows. If so, it runs before the shuffle, else after it."""

    @property
    def columns(self) -> list[str]:
        """The input columns it reads."""
        return list(self.source.schema.names)

    @property
    def goes_by(self) -> str:
        """The input column that is its time."""
        return self.source.time

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn input rows into `parts`; any subset of the rows may be prepared separately."""
        return rows

    @abstractmethod
    def step(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process one batch of one bucket; returns the output that is final, and the new state."""

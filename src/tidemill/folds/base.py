"""The contract of a fold: `(state, rows, watermark) → (output, state)` over a bucket of keys.

A fold here is a pure function of Polars frames: it uses no Spark, no files and no clock. What makes
it a distributed operator that can restart (shuffle, state files, watermark) is in `runner`, `state`
and `operator`, once for all folds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import polars as pl
import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.failures import Failures
from tidemill.folds.frames import empty
from tidemill.planning.code.chains import Reach
from tidemill.rows.columns import META
from tidemill.types import micros_of, parse_duration

TIME = pa.timestamp("us", "UTC")
Key: TypeAlias = str | Sequence[str]
Frames: TypeAlias = tuple[pl.DataFrame, pl.DataFrame]
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

    def wrong(self, message: str, fix: str = "", **facts: object) -> PlanError:
        """An error in how the operator is used, to be raised."""
        return PlanError(message, where=self.operator, fix=fix, **facts)

    def require(self, column: str, what: str) -> pa.Field:
        """The field of a column, or an error that names the operator and the column."""
        if column not in self.schema.names:
            fix = nearest(column, self.schema.names)
            raise self.wrong(f"there is no column {column!r} ({what})", fix, column=column)
        return self.schema.field(column)

    def keys(self, key: object) -> tuple[str, ...]:
        """The key columns. Each must exist, be named once, and be of a type that can be hashed."""
        names = tuple(key) if isinstance(key, list | tuple) else (key,)
        if not all(isinstance(name, str) for name in names):
            raise self.wrong(f"the key {list(names)} is not a name", "name columns")
        if not names:
            raise self.wrong("the key has no column", "name one or more")
        for name in names:
            kind = self.require(name, "key").type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                fix = "cast it to a whole number, a decimal, a string or a time"
                raise self.wrong(f"the key {name!r} is a {kind}", fix, column=name)
        if len(set(names)) < len(names):
            raise self.wrong(f"the key {list(names)} names a column twice")
        return names

    def length(self, value: object, option: str, *, zero: bool = False) -> int:
        """A duration in microseconds."""
        try:
            length = micros_of(parse_duration(value))
        except Exception as error:
            raise self.wrong(f"{option}: {error}") from None
        if length == 0 and not zero:
            raise self.wrong(f"{option} is 0", "give it a length")
        return length

    def fields(self, names: Iterable[str]) -> list[pa.Field]:
        """The fields of some columns."""
        return [self.schema.field(name) for name in names]

    @property
    def positions(self) -> tuple[str, ...]:
        """The column with a row's position, if the rows have it."""
        return (META,) if META in self.schema.names else ()

    def refuse_taken(self, made: list[str]) -> None:
        """Refuse two output columns with the same name."""
        if twice := {name for name in made if made.count(name) > 1}:
            raise self.wrong(
                f"the output has two columns named {min(twice)!r}",
                "rename the column before, or the aggregate",
            )


@dataclass(frozen=True, kw_only=True)
class BoundFold(ABC):
    """A fold whose columns and types are known. The driver makes it and sends it to executors.

    Subclasses are frozen values. Two steps with equal arguments must return equal frames, whatever
    the order of the rows.
    """

    kind: ClassVar[str]  # the operator as users write it
    prepares: ClassVar[bool] = False  # whether `prepare` makes fewer rows: before the shuffle then

    source: Input  # the rows it is applied to
    columns: list[str]  # the input columns it reads
    keys: tuple[str, ...]  # columns of `parts` that rows are bucketed by
    time: str  # the column of `parts` that the watermark refers to
    parts: pa.Schema  # what goes through the shuffle: the rows that `prepare` returns
    state: pa.Schema  # what is kept from batch to batch
    order: tuple[str, ...]  # columns that sort `state` totally: equal states have equal bytes
    output: pa.Schema
    times: dict[str, Reach]  # the time columns of `output`

    @property
    def goes_by(self) -> str:
        """The input column that is its time."""
        return self.source.time

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn input rows into `parts`; any subset of the rows may be prepared separately."""
        return rows

    def step(
        self,
        state: pl.DataFrame,
        parts: pl.DataFrame,
        passing: Passing,
        failures: Failures | None = None,
    ) -> Frames:
        """Process one batch of one bucket; returns the output that is final, and the new state.

        With ``failures``, rows at which the user's code raises an exception are noted there, and
        the step goes on as if they had not come; without, the exception is raised.
        """
        if not len(state) and not len(parts):
            return empty(self.output), state
        if failures is None:
            return self.advance(state, parts, passing)
        return self.catch(state, parts, passing, failures)

    def catch(
        self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing, failures: Failures
    ) -> Frames:
        """As `advance`, and failed rows are noted. A fold that runs no user's code has none."""
        del failures
        return self.advance(state, parts, passing)

    @abstractmethod
    def advance(self, state: pl.DataFrame, parts: pl.DataFrame, passing: Passing) -> Frames:
        """The same, for state and parts of which one at least has rows."""

"""What planning knows of folds: how far they look in time, and how long they hold rows back."""

from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.shapes import FoldShape


@dataclass(frozen=True)
class Reach(JsonValue):
    """How far a fold looks, measured in one of its output's time columns.

    An output row at time *t* depends only on input in ``[t - lookback, t + lookahead]``. After
    watermark W the fold outputs no row with a time below ``W - delay``. None means: no bound.
    """

    lookback: timedelta | None
    lookahead: timedelta | None
    delay: timedelta | None


@dataclass(frozen=True)
class FoldUse(JsonValue):
    """One fold of a pipeline, as it registered itself while the pipeline was built."""

    name: str
    kind: str
    time: str  # the input column it goes by
    times: dict[str, Reach] = field(default_factory=dict)
    delay: timedelta | None = None  # the delay of its input, if the user gave it
    shape: FoldShape | None = None  # of its state; None: it was found out by an earlier Tidemill

    @property
    def widest(self) -> Reach:
        """A reach that holds for every one of its time columns."""
        parts = zip(*((r.lookback, r.lookahead, r.delay) for r in self.times.values()), strict=True)
        return Reach(*(_longest(part) for part in parts)) if self.times else Reach(None, None, None)


def _longest(lengths: tuple[timedelta | None, ...]) -> timedelta | None:
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


@dataclass(frozen=True)
class FoldPin(JsonValue):
    """How a run treats one fold, for the life of the run.

    ``behind``: by how many microseconds the fold's watermark is behind that of its sources.
    ``native``: whether the fold follows Spark's watermark.
    ``reshuffle``: whether its output is shuffled once more. A task's number is its bucket, and a
    union or a coalesce above the fold would change the numbers.
    ``reads``: the source that only this fold reads, without code in between; the reader's tasks
    pack its rows.
    ``gives``: whether its rows are the only output, without code in between; the fold's own tasks
    write them.
    ``instance``: the key column that holds the id of an instance; empty: its rows are not paired.
    """

    behind: int = 0
    native: bool = False
    reshuffle: bool = False
    reads: str | None = None
    gives: bool = False
    instance: str = ""


@dataclass(frozen=True)
class PairUse(JsonValue):
    """One place at which a pipeline pairs rows with instances, as it registered itself."""

    name: str
    argument: str  # the pipeline's, which the instances have
    id: str  # the column of the instance's id
    on: tuple[str, ...]
    time: str  # the column of the rows that the period holds


@dataclass(frozen=True)
class FoldFacts(JsonValue):
    """A fold, and what was found in the plan around it."""

    use: FoldUse
    pin: FoldPin

"""`Processor`, the class that a user of `process` writes, and the `Context` that it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heappush
from typing import Any, ClassVar

from tidemill.errors import RunError, nearest
from tidemill.folds.own.emitting import Emitter
from tidemill.folds.own.schemas import SchemaLike


class Processor(ABC):
    """Code per row and per timer, with a state per key, in event time.

    ::

        class Quiet(Processor):
            output = {"user_id": "long", "rows": "long", "at": "timestamp"}
            lookback = "1 h"
            delay = "0"

            def on_row(self, row, ctx):
                ctx.state["rows"] = ctx.state.get("rows", 0) + 1
                ctx.delete_timer(ctx.state.get("timer"))
                ctx.state["timer"] = ctx.time + timedelta(minutes=30)
                ctx.set_timer(ctx.state["timer"])

            def on_timer(self, time, ctx):
                ctx.emit({"user_id": ctx.key, "rows": ctx.state["rows"], "at": time})
                ctx.state.clear()

    **Order.** For each key, rows come in the order of event time (ties by position if the rows have
    `_meta`, else by content). A timer for *T* comes after all rows up to and at *T*, and before all
    later rows. Rows and timers come only when the watermark has passed their time. So what a
    processor does depends on the rows alone, not on how they arrived.

    **The end.** At the planned end of a bounded run all timers fire, in order, also those that
    timers have set. A key that had no row for longer than ``lookback + delay`` is forgotten, with
    its state and timers: according to the class's declaration no output can depend on it any more.
    This keeps the state small, and ends a timer that always sets itself again. Without these bounds
    such a timer is an error at the end of a bounded run.

    **Where.** A processor runs on executors. If a class is given, one object is made per batch and
    bucket, without arguments; to configure it, give an object. Keep nothing in ``self`` while it
    runs: it would be lost at a restart and shared between keys (setting an attribute is an error).
    The clock, random numbers and remote services break the promise of equal output.
    """

    output: ClassVar[SchemaLike | None] = None
    """The columns of the output: ``{"user_id": "long", "at": "timestamp"}``."""

    outputs: ClassVar[Mapping[str, SchemaLike] | None] = None
    """For several outputs, the columns of each by its name; the first is the main one."""

    time: ClassVar[str | Mapping[str, str] | None] = None
    """The output's time column; by default its only timestamp column, if a bound is declared."""

    lookback: str | timedelta | None = None
    """How far before its time an output row depends on input. None: on all earlier input."""

    lookahead: str | timedelta | None = None
    """How far after its time an output row depends on input; by default as far as `delay`."""

    delay: str | timedelta | None = None
    """How long before `ctx.time` the time of an emitted row may be. Checked for every row."""

    columns: ClassVar[Sequence[str] | None] = None
    """The input columns it reads, beside key and time. Fewer are faster. None: all but `_meta`."""

    @abstractmethod
    def on_row(self, row: dict[str, Any], ctx: Context) -> None:
        """Handle one row of a key. You may keep or change the dict ``row``."""

    def on_timer(self, time: datetime, ctx: Context) -> None:
        """Handle the timer that was set for this time."""
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to set an attribute while the processor runs: a restart would lose it."""
        if self.__dict__.get("_running"):
            raise RunError(
                f"self.{name} is set while the processor runs",
                fix=f"keep it in the state of the key: ctx.state[{name!r}]",
            )
        object.__setattr__(self, name, value)


class Context:
    """The current key: its time, state, timers and outputs. Valid only during the call."""

    __slots__ = ("_armed", "_emitters", "_in_timer", "_timers", "key", "state", "time")

    key: Any
    """The value of the key column; a tuple if there are several."""

    time: datetime
    """The event time of the row or timer."""

    state: dict[str, Any]
    """The key's state: None, bool, int, float, str, bytes, Decimal, datetime, date, timedelta, and
    lists, tuples and dicts of them. The next call gets exactly the same values."""

    def __init__(self, emitters: dict[str, Emitter]) -> None:
        self._emitters: dict[str | None, Emitter] = {None: next(iter(emitters.values()))}
        self._emitters.update(emitters)
        self._timers: list[datetime] = []
        self._armed: set[datetime] = set()
        self._in_timer = False

    def emit(self, row: Mapping[str, Any], output: str | None = None) -> None:
        """Output a row. Missing columns are null. Without a name it goes to the first output."""
        try:
            emitter = self._emitters[output]
        except KeyError:
            known = [name for name in self._emitters if name is not None]
            fix = nearest(str(output), known)
            raise RunError(f"there is no output {output!r}", fix=fix) from None
        emitter.add(row, self.time)

    def set_timer(self, time: datetime) -> None:
        """Let `on_timer` be called at this event time; setting a timer twice changes nothing.

        A timer for a time that has passed comes right after this row (with `ctx.time` as it is
        now). A timer can only set later timers. Timers for the year 9999 and beyond never come.
        """
        moment = _aware(time)
        if self._in_timer and moment <= self.time:
            raise RunError(
                f"the timer sets a timer for {time}, which is not later",
                fix="do the work now, or set a later time",
            )
        if moment not in self._armed:
            self._armed.add(moment)
            heappush(self._timers, moment)

    def delete_timer(self, time: datetime | None) -> None:
        """Remove the timer for this time, if there is one."""
        if time is not None:
            self._armed.discard(_aware(time))

    @property
    def timers(self) -> list[datetime]:
        """The times of the timers that are set, the next first."""
        return sorted(self._armed)


def _aware(time: datetime) -> datetime:
    if not isinstance(time, datetime):
        raise RunError(
            f"the time of a timer is a {type(time).__name__}",
            fix="give a datetime, for example ctx.time + timedelta(minutes=30)",
        )
    if time.tzinfo is UTC:
        return time
    if time.tzinfo is None:
        raise RunError(f"the time of a timer, {time}, has no zone", fix="build it from ctx.time")
    return time.astimezone(UTC)

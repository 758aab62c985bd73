"""How much input around a time an output row depends on, and which operator asks for how much."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from tidemill.jsonvalue import JsonValue

_T = TypeVar("_T")
_ZERO, _TICK = timedelta(), timedelta(milliseconds=1)


@dataclass(frozen=True)
class Need(JsonValue):
    """How much input one operator needs before and after a time, and why."""

    operator: str  # as users write it
    before: timedelta
    after: timedelta
    because: str


@dataclass(frozen=True)
class Margin(JsonValue):
    """How much input before and after an output's time its rows depend on.

    A row with the time *t* depends only on input with an event time in ``[t - before, t + after]``.
    ``unbounded`` names the operators that have no bound; ``needs`` has a line for each operator.
    """

    before: timedelta = _ZERO
    after: timedelta = _ZERO
    unbounded: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()

    def __or__(self, other: "Margin") -> "Margin":
        """The margin of rows that depend on both."""
        return Margin(
            max(self.before, other.before),
            max(self.after, other.after),
            _united(self.unbounded, other.unbounded),
            _united(self.needs, other.needs),
        )

    def moved(self, before: timedelta, after: timedelta, *needs: Need) -> "Margin":
        """The margin in a time that lies elsewhere: by so much more before it, and after it."""
        return Margin(
            self.before + before, self.after + after, self.unbounded, _united(self.needs, needs)
        )

    def without_bound(self, operator: str) -> "Margin":
        """The margin behind an operator that has no bound."""
        return replace(self, unbounded=_united(self.unbounded, (operator,)))

    @property
    def read(self) -> "Margin":
        """What is read for it, in whole ms: a time wholly after its input needs none after it."""
        return replace(self, before=_whole(self.before), after=_whole(self.after))


def _whole(length: timedelta) -> timedelta:
    return max(_ZERO, -(-length // _TICK) * _TICK)


def _united(these: tuple[_T, ...], those: tuple[_T, ...]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys((*these, *those)))

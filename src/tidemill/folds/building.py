"""What is going on while a pipeline's function is called: its folds make themselves known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tidemill.errors import PlanError
from tidemill.folds.packing import Pack
from tidemill.folds.runner import Delivery, Place
from tidemill.planning.chains import FoldUse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Lift: TypeAlias = "Callable[[str, list[str], Pack], DataFrame]"
"""A source's name, the columns of its rows, and what becomes of them."""


@dataclass
class Building:
    """One call of a pipeline's function. ``places`` is None while the code is only analysed.

    ``lift`` gives a source's rows as packs for a fold, made where they are read; ``deliver`` takes
    the rows of a fold that are the output.
    """

    places: dict[str, Place] | None = None
    lift: Lift | None = None
    deliver: Delivery | None = None
    folds: dict[str, FoldUse] = field(default_factory=dict)

    def name(self, kind: str, wanted: str | None) -> str:
        """The operator's name: as wanted, or its kind, numbered from the second on."""
        if wanted is not None:
            if wanted in self.folds or not wanted.isidentifier():
                raise PlanError(
                    f"the name {wanted!r} is taken, or not a plain name",
                    where=kind,
                    fix="give each fold of a pipeline a name of its own",
                )
            return wanted
        number = 1 + sum(use.kind == kind for use in self.folds.values())
        return kind if number == 1 else f"{kind}_{number}"

    def place(self, name: str) -> Place | None:
        """Where the fold's state lives; None while analysing."""
        if self.places is None:
            return None
        if name not in self.places:
            raise PlanError(
                f"the fold {name!r} was not there when the pipeline was planned",
                fix="the pipeline must build the same operators every time it is called",
            )
        return self.places[name]


_current: ContextVar[Building | None] = ContextVar("tidemill_building", default=None)


@contextmanager
def building(
    places: dict[str, Place] | None = None,
    lift: Lift | None = None,
    deliver: Delivery | None = None,
) -> Iterator[Building]:
    """While a pipeline's function is called."""
    found = Building(places, lift, deliver)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def current_building() -> Building | None:
    """The call that is going on, or None outside of Tidemill."""
    return _current.get()

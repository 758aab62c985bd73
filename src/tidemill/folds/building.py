"""The context of a call of a pipeline's function, in which its folds register themselves."""

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

ReadPacked: TypeAlias = "Callable[[str, list[str], Pack], DataFrame]"
"""A function of a source's name, the wanted columns, and how to pack their rows."""


@dataclass
class Building:
    """One call of a pipeline's function. ``places`` is None while the code is only analysed.

    ``read_packed`` returns a source's rows as packs for a fold, which the reader's task makes.
    ``deliver`` writes a fold's rows, if these are the pipeline's output.
    """

    places: dict[str, Place] | None = None
    read_packed: ReadPacked | None = None
    deliver: Delivery | None = None
    folds: dict[str, FoldUse] = field(default_factory=dict)

    def name(self, kind: str, wanted: str | None) -> str:
        """The operator's name: the wanted name, or its kind, with a number from the second on."""
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
        """Where the fold finds its state; None while the code is only analysed."""
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
    read_packed: ReadPacked | None = None,
    deliver: Delivery | None = None,
) -> Iterator[Building]:
    """Register the folds that a pipeline's function makes inside the block."""
    found = Building(places, read_packed, deliver)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


def current_building() -> Building | None:
    """The running call of a pipeline's function, or None outside of Tidemill."""
    return _current.get()

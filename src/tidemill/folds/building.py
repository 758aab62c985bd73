"""The context of a call of a pipeline's function, in which its folds register themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from tidemill.errors import PlanError
from tidemill.folds.base import BoundFold
from tidemill.folds.packing import Pack
from tidemill.folds.runner import Delivery, Place
from tidemill.folds.shaping import shape_of
from tidemill.planning.code.chains import FoldUse, PairUse

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
    pairs: dict[str, PairUse] = field(default_factory=dict)

    def register(
        self, bound: BoundFold, wanted: str | None, delay: object | None
    ) -> tuple[str, Place | None]:
        """The fold's name, and where it finds its state; None while the code is only analysed."""
        name, length = self._name(bound, wanted), None
        if delay is not None:
            length = timedelta(microseconds=bound.source.length(delay, "delay", zero=True))
        self.folds[name] = FoldUse(
            name, bound.kind, bound.goes_by, bound.times, length, shape_of(bound)
        )
        if self.places is not None and name not in self.places:
            raise PlanError(
                f"the fold {name!r} was not there when the pipeline was planned",
                fix="the pipeline must build the same operators every time it is called",
            )
        return name, None if self.places is None else self.places[name]

    def register_pair(self, use: PairUse) -> str:
        """The name of a place that pairs rows: its argument's, with a number from the second on."""
        name = use.name if not self.pairs else f"{use.name}_{len(self.pairs) + 1}"
        self.pairs[name] = replace(use, name=name)
        return name

    def _name(self, bound: BoundFold, wanted: str | None) -> str:
        """The wanted name, or the fold's kind, with a number from the second on."""
        if wanted is None:
            number = 1 + sum(use.kind == bound.kind for use in self.folds.values())
            return bound.kind if number == 1 else f"{bound.kind}_{number}"
        if wanted in self.folds or not wanted.isidentifier():
            raise bound.source.wrong(
                f"the name {wanted!r} is taken, or not a plain name",
                "give each fold of a pipeline a name of its own",
            )
        return wanted


CURRENT: ContextVar[Building | None] = ContextVar("tidemill_building", default=None)
"""The running call of a pipeline's function, or None outside of Tidemill."""


@contextmanager
def building(
    places: dict[str, Place] | None = None,
    read_packed: ReadPacked | None = None,
    deliver: Delivery | None = None,
) -> Iterator[Building]:
    """Register the folds that a pipeline's function makes inside the block."""
    found = Building(places, read_packed, deliver)
    token = CURRENT.set(found)
    try:
        yield found
    finally:
        CURRENT.reset(token)

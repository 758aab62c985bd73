"""The plan of an upgrade: whether state is carried or made again, and why. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tidemill.planning.carrying import Misfit, StatePoint
from tidemill.planning.code.behaviour import describe_difference, first_difference
from tidemill.planning.manifest import Manifest
from tidemill.types import FOREVER_MICROS, from_micros, show_instant


class Way(StrEnum):
    """How the new run gets its state."""

    STATELESS = "stateless"  # there is none: the place in the log alone is carried
    CARRIED = "carried"
    REBUILT = "rebuilt"  # from the archive


@dataclass(frozen=True)
class UpgradePlan:
    """What an upgrade would do, with the run as it stands now."""

    old: Manifest
    new: Manifest  # a draft, with the code of now
    way: Way
    point: StatePoint  # where the old run stands now
    misfits: tuple[Misfit, ...] = ()  # why state is made again
    asked: bool = False  # to make it again, though it would fit

    @property
    def changes(self) -> list[str]:
        """What is different, in the order in which a reader asks for it."""
        return find_changes(self.old, self.new)

    @property
    def added(self) -> dict[str, list[str]]:
        """By fold, the aggregates that begin with the rows from the switch on."""
        if self.way is not Way.CARRIED:
            return {}
        kept = self.point.folds
        found = {
            name: shape.added(kept[name].shape)
            for name, shape in self.new.code.shapes.items()
            if name in kept
        }
        return {name: names for name, names in found.items() if names}

    @property
    def open_since(self) -> dict[str, datetime]:
        """By fold that is carried, from when on its state holds rows that the old code chose.

        All that ends later is open: what stands before the fold now applies only to the rows since.
        """
        is_code = any(change.startswith(("code:", "source ")) for change in self.changes)
        if self.way is not Way.CARRIED or not is_code:
            return {}
        kept = {name: self.point.folds[name] for name in self.new.code.folds}
        begun = {name: each.watermark for name, each in kept.items() if each.watermark > 0}
        return {name: from_micros(at) for name, at in begun.items() if at < FOREVER_MICROS}

    def to_json(self) -> dict[str, Any]:
        """One object, as ``upgrade --dry-run --json`` prints it."""
        point = self.point
        return {
            "run": self.old.run,
            "pipeline": self.old.pipeline,
            "state": str(self.way),
            "because": [{"operator": each.operator, "why": each.why} for each in self.misfits],
            "added": self.added,
            "changes": self.changes,
            "open_since": {name: show_instant(at) for name, at in self.open_since.items()},
            "batch": point.batch,
            "frontiers": {
                name: show_instant(from_micros(source.frontier))
                for name, source in point.sources.items()
            },
        }


def find_changes(then: Manifest, now: Manifest) -> list[str]:
    """What is different in a run of now."""
    found = []
    code = first_difference(then.code.behaviour, now.code.behaviour)
    if code is not None:
        found.append(f"code: {describe_difference(*code)}")
    if then.code.settings != now.code.settings:
        found.append("Spark's settings")
    if then.resources.buckets != now.resources.buckets:
        found.append(f"buckets: {then.resources.buckets} → {now.resources.buckets}")
    for name, pin in now.sources.items():
        before = then.sources.get(name)
        if before is not None and (before.times, before.rows.where) != (
            pin.times,
            pin.rows.where,
        ):
            found.append(f"source {name}: its times or its filter")
    places = [
        {name: sink.place for name, sink in each.outputs.sinks.items()} for each in (then, now)
    ]
    return [*found, *(["outputs"] if places[0] != places[1] else [])]

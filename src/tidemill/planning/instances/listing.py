"""What is told of the instances of a pipeline: one line each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.planning.code.params import write
from tidemill.planning.instances.book import Book
from tidemill.planning.instances.values import Instance, InstanceState
from tidemill.types import from_micros, show_instant


@dataclass(frozen=True)
class InstanceStatus:
    """An instance and how far it is; what only a live run can tell is None without one."""

    instance: Instance
    state: InstanceState
    watermark: int | None = None  # µs
    rows: int | None = None  # that it has given
    percent: float | None = None  # of its past that is read
    eta: float | None = None  # seconds until its past is read

    def to_json(self) -> dict[str, Any]:
        """As ``instances list --json`` prints it."""
        return {
            "id": plain(self.instance.id),
            "state": str(self.state),
            "from": _moment(self.instance.start),
            "to": _moment(self.instance.end),
            "watermark": _moment(self.watermark),
            "rows": self.rows,
            "created": _moment(self.instance.created),
            "percent": self.percent,
            "eta": self.eta,
        }

    def whole(self) -> dict[str, Any]:
        """As ``instances show --json`` prints it: with the parameters."""
        params = {name: plain(value) for name, value in self.instance.params.items()}
        return {**self.to_json(), "params": params}


def _moment(micros: int | None) -> str | None:
    return None if micros is None else show_instant(from_micros(micros))


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no type for is a text."""
    return value if value is None or isinstance(value, str | bool | int | float) else write(value)


@dataclass(frozen=True)
class Known:
    """What is known of instances beside their table: withdrawals, and what a live run tells."""

    withdrawn: Collection[str] = ()
    live: Mapping[str, InstanceStatus] = field(default_factory=dict)


def list_instances(book: Book, known: Known) -> list[InstanceStatus]:
    """Every instance with its state, in the order of the ids. Without a run it is waiting."""
    return [_status(each, known) for each in book.valid]


def _status(instance: Instance, known: Known) -> InstanceStatus:
    text = str(instance.id)
    found = known.live.get(text, InstanceStatus(instance, InstanceState.WAITING))
    if text not in known.withdrawn:
        return found
    return InstanceStatus(instance, InstanceState.WITHDRAWN, found.watermark, found.rows)

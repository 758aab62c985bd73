"""Positions in a topic: where each partition is read next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.connectors.logs.contract import Json


@dataclass(frozen=True)
class TopicPositions:
    """The first offset to read in each partition. One that is not named is read from its first."""

    offsets: Mapping[int, int] = field(default_factory=dict)

    def __getitem__(self, partition: int) -> int:
        """The first offset to read in a partition."""
        return self.offsets.get(partition, 0)

    def left(self, ends: Mapping[int, int]) -> dict[str, int]:
        """How many offsets each partition has up to its end, as `status` is told."""
        return {str(number): end - self[number] for number, end in ends.items()}

    def to_json(self) -> dict[str, int]:
        """``{"0": 17}``; equal positions are equal texts."""
        return dict(sorted((str(number), at) for number, at in self.offsets.items()))

    @classmethod
    def from_json(cls, value: Json | None) -> TopicPositions:
        """The inverse of :meth:`to_json`; None names no partition."""
        return cls({int(number): int(at) for number, at in (value or {}).items()})

"""What a soak measures: the first tenth of a long run beside the last."""

import statistics
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

LIMIT = 1.1
"""By how much the last tenth may cost more than the first."""


@dataclass
class Tenth:
    """A tenth of the batches."""

    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    memory: int = 0  # bytes, the most that was seen
    files: int = 0  # the most that was seen
    queries: int = 0  # of the registry

    def per_batch(self) -> float:
        """Median seconds of a batch."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Growth:
    """The last tenth by the first: 1.0 is flat."""

    seconds: float
    memory: float
    files: float
    queries: float

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew beyond the limit."""
        return all(getattr(self, part.name) <= LIMIT for part in fields(self))


@dataclass
class Tenths:
    """All of a soak."""

    batches: int
    parts: list[Tenth] = field(default_factory=lambda: [Tenth() for _ in range(10)])

    def of(self, batch: int) -> Tenth:
        """The tenth a batch belongs to."""
        return self.parts[min(9, batch * 10 // self.batches)]

    def growth(self) -> Growth:
        """The first tenth beside the last."""
        first, last = self.parts[0], self.parts[-1]
        return Growth(
            last.per_batch() / first.per_batch(),
            last.memory / first.memory,
            last.files / first.files,
            (last.queries / len(last.seconds)) / (first.queries / len(first.seconds)),
        )

    def lines(self) -> list[str]:
        """A table for the report."""
        head = [
            "| tenth | ms per batch | memory, MB | files | registry queries per batch |",
            "|---|---|---|---|---|",
        ]
        return head + [
            f"| {number} | {part.per_batch() * 1e3:.2f} | {part.memory / 1e6:.0f} | {part.files:,} "
            f"| {part.queries / len(part.seconds):.2f} |"
            for number, part in enumerate(self.parts, 1)
            if part.seconds
        ]


def count_files(folders: Iterable[Path]) -> int:
    """Files below the folders; one that goes while it is counted does not count."""
    return sum(1 for folder in folders for path in folder.rglob("*") if path.is_file())

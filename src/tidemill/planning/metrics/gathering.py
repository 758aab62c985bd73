"""What the tasks of a batch tell the driver of their own work.

It travels in a Spark accumulator, with the messages in which executors say that a task is done:
there is no file and no message more. A task that runs again replaces what it told before, and what
a killed driver had gathered is gone with it: its batch runs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Told: TypeAlias = dict[tuple[int, str, str, int], dict[str, float]]
"""Figures by batch, stage (``fold`` or ``write``), its name, and the number of the task."""
FOLD, WRITE = "fold", "write"


class Gathering:
    """How Spark puts together what tasks told: see ``pyspark.accumulators.AccumulatorParam``."""

    def zero(self, value: Told) -> Told:
        """Nothing told yet."""
        del value
        return {}

    def addInPlace(self, told: Told, more: Told) -> Told:
        """The figures of more tasks."""
        told.update(more)
        return told


@dataclass(frozen=True)
class TaskMeter:
    """A task's end of it; ``gathered`` is a Spark accumulator with :class:`Gathering`."""

    gathered: Any

    def tell(self, stage: str, name: str, **figures: float) -> None:
        """Tell the figures of this task. Executor; nothing is told outside of a batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is not None and batch is not None:
            self.gathered.add({(int(batch), stage, name, context.partitionId()): figures})

    def take(self, batch: int) -> Told:
        """What the tasks of a batch told; nothing of earlier ones is kept. Driver."""
        told: Told = {key: each for key, each in self.gathered.value.items() if key[0] == batch}
        self.gathered.value = {}
        return told

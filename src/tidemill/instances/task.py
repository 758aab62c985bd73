"""Pairing on executors: which instances a task's batch sees, and its rows with each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemill.errors import RunError, errors_told
from tidemill.folds.frames import in_utc
from tidemill.instances.kernel import Index, Pairing
from tidemill.planning.code.lineage import PAIR
from tidemill.runfolder.decided_versions import DecidedVersions

_BATCH = "streaming.sql.batchId"
_KEPT = 4
_indexes: dict[tuple[str, str, str, Pairing], Index] = {}
"""Of the versions that the last tasks of this process saw."""


@dataclass(frozen=True)
class PairTask:
    """What ``mapInArrow`` runs. Without a ``run`` and without ``rows`` the code is only analysed.

    The instances of a run are the version that was decided for the batch: a batch that runs again
    sees the same ones. ``schema`` is theirs; it is here because it is a part of the code's
    behaviour, and the instances are none.
    """

    name: str
    pairing: Pairing
    argument: str
    schema: pa.Schema
    run: str | None = None  # URI of the run's folder
    rows: pa.Table | None = None

    def __post_init__(self) -> None:
        """The plan shows this name, and planning knows the node by it."""
        object.__setattr__(self, "__name__", PAIR + self.name)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Executor: all pairs of the rows of one task."""
        with errors_told():
            index = None
            for batch in batches:
                index = index or self._index()
                for pairs in index.pair(in_utc(pa.Table.from_batches([batch]))):
                    yield from pairs.combine_chunks().to_batches()

    def _index(self) -> Index:
        if self.rows is not None:
            return Index(self.rows, self.pairing)
        batch = _batch()
        if self.run is None or batch is None:
            raise RunError(
                f"pairs with {self.argument!r} were asked for while the pipeline was built",
                fix="pair the rows; count(), collect() and the like are not possible there",
            )
        versions = DecidedVersions(self.run, self.argument)
        version = versions.of(batch)
        key = (self.run, self.argument, version.digest, self.pairing)
        if key not in _indexes:
            for old in list(_indexes)[: 1 - _KEPT]:
                _indexes.pop(old, None)
            _indexes[key] = Index(versions.rows(version), self.pairing)
        return _indexes[key]


def _batch() -> int | None:
    """The number of the batch that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(_BATCH)
    return None if found is None else int(found)

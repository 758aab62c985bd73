"""Read the fold state of a run: a summary per operator, or the rows of one key. No Spark."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import PlanError, RunError, nearest
from tidemill.folds.state import StateFiles
from tidemill.folds.watermark import NEVER
from tidemill.runtime.reports.statekeys import (
    count_keys,
    matches_key,
    pair_key,
    parse_key,
    write_key,
)
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.folds.state import Label
    from tidemill.runfolder.folder import RunFolder

ABOUT = b"tidemill.state"
"""The key in a state table's schema metadata that says which run, operator and batch it is of."""
_LARGEST = 3
_KEYS_NAMED = 5


@dataclass(frozen=True)
class BucketSize:
    """One bucket of a version."""

    bucket: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class StateSummary:
    """What one operator keeps after a batch.

    ``oldest`` and ``newest`` are values of the column ``time``, None if there are no rows;
    ``watermark`` is None until every source has begun. ``batches`` are the kept versions.
    """

    operator: str
    kind: str
    batch: int
    watermark: datetime | None
    key: tuple[str, ...]
    time: str
    keys: int
    rows: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None
    buckets: int
    largest: tuple[BucketSize, ...]
    batches: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As ``state --json`` prints it."""
        return {
            "operator": self.operator,
            "kind": self.kind,
            "batch": self.batch,
            "batches": list(self.batches),
            "watermark": _shown(self.watermark),
            "key": list(self.key),
            "time": self.time,
            "keys": self.keys,
            "rows": self.rows,
            "bytes": self.bytes,
            "oldest": _shown(self.oldest),
            "newest": _shown(self.newest),
            "buckets": self.buckets,
            "largest": [
                {"bucket": each.bucket, "rows": each.rows, "bytes": each.bytes}
                for each in self.largest
            ],
        }


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else show_instant(moment)


class RunStates:
    """The kept state of one run, which may be running: versions are deleted, but never changed."""

    def __init__(self, folder: RunFolder) -> None:
        """Read the manifest; state files are opened when they are needed."""
        manifest = folder.read_manifest()
        self.run, self.pipeline = manifest.run, manifest.pipeline
        self.folds, self.buckets = manifest.folds, manifest.buckets
        self.files = StateFiles(folder.state, self.run)
        self._known: dict[str, list[int]] = {}

    def summaries(self, operator: str | None, batch: int | None) -> list[StateSummary]:
        """Summaries of one operator or of all, after the given batch or the last complete one."""
        known = self._operators()
        names = known if operator is None else [self._operator(operator)]
        return [self._summary(name, batch) for name in names]

    def rows_of(self, key: Sequence[Any], operator: str | None, batch: int | None) -> pa.Table:
        """The rows of one key; if there are none, the error names some keys that have rows."""
        name = self._operator(operator)
        version, _ = self._version(name, batch)
        found, wanted = [], None
        for label, rows in self._buckets(name, version):
            if wanted is None:
                wanted = [parse_key(label, rows.schema, *pair) for pair in pair_key(label, key)]
            found.append(rows.filter(matches_key(rows, wanted)) if wanted else rows)
        table = pa.concat_tables(found)
        if not len(table):
            raise self._no_such_key(label, key)
        about = {
            "run": self.run,
            "operator": name,
            "kind": label.kind,
            "batch": version,
            "watermark": _shown(_moment(label.watermark)),
        }
        return table.replace_schema_metadata({ABOUT: json.dumps(about)})

    def _operators(self) -> list[str]:
        if not self.folds:
            raise RunError(
                f"the run {self.run} has no fold state: {self.pipeline!r} uses no folds",
                fix="what Spark's own operators keep is in the run's checkpoint, for Spark alone",
            )
        found = [name for name in self.files.operators() if self._whole(name)]
        if not found:
            raise RunError(
                f"the run {self.run} has no fold state yet: no batch is done",
                fix=f"'tidemill status {self.run}' says how far it is",
            )
        return found

    def _operator(self, wanted: str | None) -> str:
        """The wanted operator; without a name there must be only one."""
        known = self._operators()
        if wanted is None and len(known) > 1:
            raise PlanError(
                f"the run {self.run} has {len(known)} operators with state",
                fix=f"say which with --operator: {', '.join(known)}",
            )
        if wanted is not None and wanted not in known:
            raise PlanError(
                f"the run {self.run} has no operator {wanted!r} with state",
                fix=nearest(wanted, known),
                operator=wanted,
            )
        return wanted or known[0]

    def _whole(self, operator: str) -> list[int]:
        """The versions that have all their buckets; a killed run may have begun another."""
        if operator not in self._known:
            self._known[operator] = [
                batch
                for batch in self.files.batches(operator)
                if len(self.files.buckets(operator, batch)) == self.buckets
            ]
        return self._known[operator]

    def _version(self, operator: str, batch: int | None) -> tuple[int, list[int]]:
        """The wanted version, and all complete versions."""
        kept = self._whole(operator)
        if batch is None:
            return kept[-1], kept
        if batch not in kept:
            begun = len(self.files.buckets(operator, batch))
            what = f"has only {begun} of {self.buckets} buckets" if begun else "is not kept"
            raise PlanError(
                f"batch {batch} of {operator} {what}",
                where=f"run {self.run}",
                fix=f"kept whole: {show_batches(kept)}",
                batch=batch,
            )
        return batch, kept

    def _buckets(self, operator: str, batch: int) -> Iterator[tuple[Label, pa.Table]]:
        """Read buckets one at a time, because all of them may not fit in memory."""
        for bucket in range(self.buckets):
            yield self.files.read(operator, batch, bucket)

    def _summary(self, operator: str, batch: int | None) -> StateSummary:
        version, kept = self._version(operator, batch)
        bytes_of = dict(self.files.buckets(operator, version))
        sizes, keys, times = [], 0, []
        for label, rows in self._buckets(operator, version):
            sizes.append(BucketSize(label.bucket, len(rows), bytes_of[label.bucket]))
            keys += count_keys(rows, label.keys)
            if len(rows) and label.time in rows.schema.names:
                times += pc.min_max(rows.column(label.time)).as_py().values()
        known = [time for time in times if time is not None]
        return StateSummary(
            operator=operator,
            kind=label.kind,
            batch=version,
            watermark=_moment(label.watermark),
            key=label.keys,
            time=label.time,
            keys=keys,
            rows=sum(size.rows for size in sizes),
            bytes=sum(size.bytes for size in sizes),
            oldest=min(known, default=None),
            newest=max(known, default=None),
            buckets=self.buckets,
            largest=tuple(heapq.nlargest(_LARGEST, sizes, lambda size: (size.rows, size.bytes))),
            batches=tuple(kept),
        )

    def _no_such_key(self, label: Label, key: Sequence[Any]) -> RunError:
        given = ", ".join(f"{name}={value}" for name, value in pair_key(label, key))
        some = self._some_keys(label.operator, label.batch)
        there = f"it has, for example, {' | '.join(some)}" if some else "it is empty"
        return RunError(
            f"the state of {label.operator} after batch {label.batch} has no row"
            + (f" of {given}" if given else ""),
            where=f"run {self.run}",
            fix=f"{there}; kept batches, for --batch: {show_batches(self._whole(label.operator))}",
            operator=label.operator,
            batch=label.batch,
        )

    def _some_keys(self, operator: str, batch: int) -> list[str]:
        """A few keys that have state, in the form that --key takes."""
        found: list[str] = []
        for label, rows in self._buckets(operator, batch):
            if label.keys and len(found) < _KEYS_NAMED:
                keys = rows.group_by(list(label.keys), use_threads=False).aggregate([])
                found += [
                    " ".join(map(write_key, row.values())) for row in keys[:_KEYS_NAMED].to_pylist()
                ]
        return found[:_KEYS_NAMED]


def show_batches(batches: Sequence[int]) -> str:
    """Batches as people say them: ``3 to 12``, ``3, 5 to 7``."""
    spans: list[list[int]] = []
    for batch in batches:
        if spans and spans[-1][1] == batch - 1:
            spans[-1][1] = batch
        else:
            spans.append([batch, batch])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)


def _moment(micros: int) -> datetime | None:
    return None if micros == NEVER else from_micros(micros)

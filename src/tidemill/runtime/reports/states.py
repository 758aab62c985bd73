"""Read the fold state of a run: a summary per operator, or the rows of one key. No Spark."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import ConfigError, PlanError, RunError, nearest
from tidemill.folds.state import Label, StateFiles
from tidemill.folds.watermark import NEVER
from tidemill.runfolder.folder import RunFolder
from tidemill.types import from_micros, parse_instant, show_instant

ABOUT = b"tidemill.state"
"""The key in a state table's schema metadata that says which run, operator and batch it is of."""
NULL = "null"
"""The word for a null in a key."""
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
    """What one operator keeps after a batch, in the order in which ``state --json`` prints it.

    ``oldest`` and ``newest`` are values of the column ``time``, None if there are no rows;
    ``watermark`` is None until every source has begun. ``batches`` are the kept versions.
    """

    operator: str
    kind: str
    batch: int
    batches: tuple[int, ...]
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

    def to_json(self) -> dict[str, Any]:
        """As ``state --json`` prints it."""
        found: dict[str, Any] = as_json(asdict(self))
        return found


def as_json(value: Any) -> Any:
    """A value that JSON can hold: times and bytes become text, durations seconds."""
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, datetime) and value.tzinfo:
        return show_instant(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


class RunStates:
    """The kept state of one run, which may be running: versions are deleted, but never changed."""

    def __init__(self, folder: RunFolder) -> None:
        manifest = folder.read_manifest()
        self.run, self.pipeline = manifest.run, manifest.pipeline
        self.folds, self.buckets = manifest.code.folds, manifest.resources.buckets
        self.files = StateFiles(folder.state, self.run)
        self._known: dict[str, list[int]] = {}

    def summaries(self, operator: str | None, batch: int | None) -> list[StateSummary]:
        """Summaries of one operator or of all, after the given batch or the last complete one."""
        names = self._operators() if operator is None else [self._operator(operator)]
        return [self._summary(name, batch) for name in names]

    def rows_of(self, key: Sequence[Any], operator: str | None, batch: int | None) -> pa.Table:
        """The rows of one key; if there are none, the error names some keys that have rows."""
        name = self._operator(operator)
        version, _ = self._version(name, batch)
        found, wanted = [], None
        for label, rows in self._buckets(name, version):
            if wanted is None:
                wanted = [_parse_key(label, rows.schema, *pair) for pair in _pair_key(label, key)]
            found.append(_rows_with(rows, wanted))
        table = pa.concat_tables(found)
        if not len(table):
            raise self._no_such_key(label, key)
        about = {
            "run": self.run,
            "operator": name,
            "kind": label.kind,
            "batch": version,
            "watermark": as_json(_moment(label.watermark)),
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
            # Without key columns all rows have one key.
            keys += len(_distinct_keys(rows, label.keys)) if label.keys else min(1, len(rows))
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
        given = ", ".join(f"{name}={value}" for name, value in _pair_key(label, key))
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
                keys = _distinct_keys(rows, label.keys)[:_KEYS_NAMED].to_pylist()
                found += [" ".join(map(_write_key, row.values())) for row in keys]
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


def _pair_key(label: Label, key: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each key column with its value; there must be one value per column."""
    if len(key) != len(label.keys):
        columns = ", ".join(label.keys) or "no columns"
        raise PlanError(
            f"{len(key)} values were given for the key of {label.operator}, which is {columns}",
            fix="give one --key per column, in this order" if label.keys else "leave --key out",
        )
    return list(zip(label.keys, key, strict=True))


def _parse_key(
    label: Label, schema: pa.Schema, column: str, value: Any
) -> tuple[str, Any, pa.Scalar]:
    """(column, value as given, value of the column's type)."""
    kind = schema.field(column).type
    try:
        if value is None or (value == NULL and not _is_text(kind)):
            return column, value, pa.scalar(None, kind)
        if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz is not None:
            return column, value, pa.scalar(parse_instant(value), kind)
        made = pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
    except (pa.ArrowException, ConfigError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(
            f"the key {column} is of type {kind}, and {value!r} is not",
            where=label.operator,
            fix=error.fix if isinstance(error, ConfigError) else "write a value of its type",
            column=column,
        ) from None
    return column, value, made


def _rows_with(rows: pa.Table, key: list[tuple[str, Any, pa.Scalar]]) -> pa.Table:
    """The rows of this key; the word null matches nulls, and also the text null."""
    for column, given, value in key:
        same = pc.fill_null(pc.equal(rows.column(column), value), False)
        if given in (None, NULL):
            same = pc.or_(same, pc.is_null(rows.column(column)))
        rows = rows.filter(same)
    return rows


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _distinct_keys(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    return rows.group_by(list(keys), use_threads=False).aggregate([])


def _write_key(value: Any) -> str:
    """A value as ``--key`` takes it."""
    is_zoned = isinstance(value, datetime) and value.tzinfo is not None
    return NULL if value is None else show_instant(value) if is_zoned else str(value)

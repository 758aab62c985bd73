"""Late and dead rows and the row counts leave at the reader, one file per task.

The name is a pure function of (source, start, end, task), rows and counts are a pure function of
what is read, and a file appears whole (atomic rename): however often a task runs, or a stream is
read, there is one file with one content, but for the seconds that the task took. The commit asks
for exactly the names it expects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from operator import add
from typing import Any, TypeVar

import pyarrow as pa

from tidemill.errors import RunError
from tidemill.rows.verdict import SIDE_SCHEMA
from tidemill.runfolder.folder import SIDE_SLICE, numbered
from tidemill.storage.location import Location

T = TypeVar("T")
_COUNTS = b"tidemill.counts"


@dataclass(frozen=True)
class ReadFigures:
    """What reading cost. It says nothing of the rows, and nothing is decided by it."""

    tasks: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __add__(self, other: ReadFigures) -> ReadFigures:
        """The figures of both."""
        return ReadFigures(
            self.tasks + other.tasks, self.bytes + other.bytes, self.seconds + other.seconds
        )


@dataclass(frozen=True)
class Counts:
    """Rows by verdict; ``in = on_time + late + dead`` always."""

    on_time: int = 0
    late: int = 0
    dead: int = 0
    suppressed: int = 0
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)  # partition: offsets
    newest: dict[str, int] = field(default_factory=dict)  # partition: ingest time, µs
    gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # offsets without a row
    clock: int = 0  # of those read: came behind a frontier that the clock had moved
    figures: ReadFigures = field(default=ReadFigures(), compare=False)

    @property
    def read(self) -> int:
        """All rows read."""
        return self.on_time + self.late + self.dead

    def __add__(self, other: Counts) -> Counts:
        """Counts of two disjoint sets of rows."""
        return Counts(
            self.on_time + other.on_time,
            self.late + other.late,
            self.dead + other.dead,
            self.suppressed + other.suppressed,
            _union(self.positions, other.positions, _around),
            _union(self.newest, other.newest, max),
            _union(self.gaps, other.gaps, add),
            self.clock + other.clock,
            self.figures + other.figures,
        )


def _union(one: dict[str, T], other: dict[str, T], both: Callable[[T, T], T]) -> dict[str, T]:
    """By partition; ``both`` says what becomes of a partition that is in both."""
    return {**one, **{key: both(one[key], v) if key in one else v for key, v in other.items()}}


def _around(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])


def side_name(source: str, start: int, end: int, index: int) -> str:
    """The file of one task, relative to the run's side folder."""
    return numbered(SIDE_SLICE.format(source=source, start=start, end=end), index)


def write_side_file(folder: str, name: str, rows: list[pa.RecordBatch], counts: Counts) -> None:
    """Write one task's file, also when there are no rows. Executor."""
    schema = SIDE_SCHEMA.with_metadata({_COUNTS: json.dumps(asdict(counts)).encode()})
    named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    (Location(folder) / name).write_arrow(schema, named)


def read_side_files(folder: str, names: Iterable[str]) -> tuple[Counts, pa.Table]:
    """The counts and rows of exactly these files. Driver, at commit."""
    total, tables = Counts(), [SIDE_SCHEMA.empty_table()]
    for name in names:
        try:
            table = (Location(folder) / name).read_arrow()
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise RunError(
                f"the side file {name} is missing or damaged: {error}",
                fix="'tidemill resume' runs the slice again",
            ) from None
        total += _counts(table.schema.metadata)
        tables.append(table.replace_schema_metadata(None))
    return total, pa.concat_tables(tables)


def _counts(metadata: dict[bytes, bytes]) -> Counts:
    value: dict[str, Any] = json.loads(metadata[_COUNTS])
    value["positions"] = {name: tuple(pair) for name, pair in value["positions"].items()}
    value["figures"] = ReadFigures(**value.get("figures", {}))
    value["gaps"] = {name: [tuple(pair) for pair in pairs] for name, pairs in value["gaps"].items()}
    return Counts(**value)


def remove_side_files(folder: str, source: str, start: int, end: int) -> None:
    """Drop a slice's files once its batch is committed everywhere."""
    (Location(folder) / SIDE_SLICE.format(source=source, start=start, end=end)).remove_folder()

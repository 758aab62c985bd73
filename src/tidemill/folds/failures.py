"""Failed rows: rows at which a user's code raised an exception, under ``on_error: dead``.

A task of a fold leaves them in one file per (operator, batch, bucket), also when there are none.
The name is a pure function of these, the bytes are one of the rows, and a file appears whole: a
task that runs twice writes the same file again. The commit of the batch takes exactly the files
that it expects, and puts their rows into the dead table.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import polars as pl
import pyarrow as pa

from tidemill.errors import RunError, TidemillError
from tidemill.rows.columns import META, batch_of
from tidemill.rows.rowtext import row_texts
from tidemill.rows.verdict import DEAD_SCHEMA
from tidemill.runfolder.folder import FAILED_ROWS, numbered
from tidemill.storage.location import Location

NOT_OF_THE_ROW = (MemoryError,)
"""Exceptions that say something of the machine. They end the run whatever ``on_error`` says."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_LONGEST = 1_000
_OWN = str(Path(__file__).parent.parent)
_LIBRARIES = (_OWN, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<frozen")


@dataclass(frozen=True)
class FailedRow:
    """Why a row failed, and where in the user's code."""

    reason: str
    place: str

    @classmethod
    def of(cls, error: BaseException) -> FailedRow:
        """From the exception. The text is the same in every process: it holds no addresses."""
        text = error.message if isinstance(error, TidemillError) else _text(error)
        told = " ".join(f"{type(error).__name__}: {text}".rstrip(": ").split())
        return cls(_ADDRESS.sub("0x…", told)[:_LONGEST], _place(error))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "its text cannot be made"


def _place(error: BaseException) -> str:
    """The function, file and line in the user's code that raised, or called what raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    if not own:
        return ""
    return f"{own[-1].name} ({Path(own[-1].filename).name}:{own[-1].lineno})"


@dataclass
class Failures:
    """The failed rows of one step, as they are found."""

    time: str  # the column with the event time
    source: str | None = None  # the stream they came from, if it can only be one
    _found: list[tuple[pl.DataFrame, int, FailedRow]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many were found so far."""
        return len(self._found)

    def add(self, rows: pl.DataFrame, index: int, failed: FailedRow) -> None:
        """Note one of these rows."""
        self._found.append((rows, index, failed))

    def forget(self, length: int) -> None:
        """Keep only the first ones: the step, or a part of it, is done again."""
        del self._found[length:]

    def table(self, operator: str) -> pa.Table:
        """The rows in the columns of the dead table, in an order that follows from them alone."""
        if not self._found:
            return DEAD_SCHEMA.empty_table()
        rows = self._rows()
        batch = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks().to_batches()[0]
        columns = [name for name in batch.schema.names if name != META]
        known = {
            "source": pa.repeat(pa.scalar(self.source, pa.string()), len(rows)),
            "reason": pa.array([failed.reason for *_, failed in self._found], pa.string()),
            "event_time": batch.column(self.time),
            "row": pa.array(row_texts(batch, columns), pa.string()),
            "operator": pa.repeat(pa.scalar(operator), len(rows)),
            "place": pa.array([failed.place for *_, failed in self._found], pa.string()),
        }
        if META in batch.schema.names:
            meta = batch.column(META)
            known |= {name: meta.field(name) for name in ("partition", "offset", "ingest_time")}
        made = batch_of(DEAD_SCHEMA, len(rows), known)
        order = [(name, "ascending") for name in ("event_time", "row", "reason", "place")]
        return pa.Table.from_batches([made]).sort_by(order)

    def _rows(self) -> pl.DataFrame:
        """All of them; those of one frame are taken out of it at once."""
        runs = groupby(self._found, key=lambda found: id(found[0]))
        blocks: list[pl.DataFrame] = []
        for _, run in runs:
            frames, indices, _ = zip(*run, strict=True)
            blocks.append(frames[0][list(indices)])
        return pl.concat(blocks, how="vertical")


def failed_name(operator: str, batch: int, bucket: int) -> str:
    """The file of one task, relative to the run's folder of failed rows."""
    return numbered(FAILED_ROWS.format(operator=operator, batch=batch), bucket)


def write_failed(uri: str, name: str, rows: pa.Table) -> None:
    """Write one task's file, also when there are no rows. Executor."""
    (Location(uri) / name).write_arrow(DEAD_SCHEMA, rows.combine_chunks().to_batches())


def read_failed(uri: str, operators: Iterable[str], batch: int, buckets: int) -> pa.Table:
    """The failed rows of a batch, from exactly the expected files. Driver, at commit."""
    tables = [DEAD_SCHEMA.empty_table()]
    for operator in operators:
        for bucket in range(buckets):
            name = failed_name(operator, batch, bucket)
            try:
                tables.append((Location(uri) / name).read_arrow())
            except (FileNotFoundError, pa.ArrowInvalid) as error:
                raise RunError(
                    f"the file of failed rows {name} is missing or damaged: {error}",
                    where=uri,
                    fix="'tidemill resume' runs the batch again",
                ) from None
    return pa.concat_tables(tables)


def remove_failed(uri: str, operators: Sequence[str], batch: int) -> None:
    """Drop a batch's files once it is committed everywhere."""
    for operator in operators:
        (Location(uri) / FAILED_ROWS.format(operator=operator, batch=batch)).remove_folder()

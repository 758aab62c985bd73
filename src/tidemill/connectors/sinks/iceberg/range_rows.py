"""Rows of a range, written again or compared; never more than a part of a file is in memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.connectors.sinks.iceberg.dropping import named_files
from tidemill.connectors.sinks.iceberg.range_files import Key, Part, Stretch, read_rows
from tidemill.iceberg.data_files import write_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

_FLUSH_BYTES = 128 * 1024 * 1024
_WHOLE = 2**128


@dataclass
class Rewriter:
    """Writes rows of files again, each file once, also if the commit has to begin again.

    Every file that it has written is noted in the ``journal`` before the next one is written. So a
    call that is killed leaves at most one file that nobody knows of.
    """

    stretch: Stretch
    journal: Path | None = None
    _made: dict[tuple[Key, bool, int, int], list[DataFile]] = field(default_factory=dict)

    def rest(self, table: Table, part: Part) -> list[DataFile]:
        """The rows of a file of the table that lie outside of the range."""
        return self._write(table, part, table, inside=False)

    def share(self, table: Table, part: Part, source: Table) -> list[DataFile]:
        """The rows of a file of another table, or of an older state, that lie in the range."""
        return self._write(table, part, source, inside=True)

    def _write(self, table: Table, part: Part, source: Table, *, inside: bool) -> list[DataFile]:
        now = table.metadata
        key = (part.key, inside, now.current_schema_id, now.default_spec_id)
        if key not in self._made:
            self._made[key] = []
            rows = chosen_rows(source, part.task, self.stretch, inside=inside)
            fitted = (fit(batch, now.schema()) for batch in rows)
            for piece in _pieces(fitted):
                files = write_files(now, table.io, piece, [self.stretch.column])
                self._made[key] += files
                self._note(files)
        return self._made[key]

    def _note(self, files: Iterable[DataFile]) -> None:
        if self.journal is not None:
            self.journal.parent.mkdir(parents=True, exist_ok=True)
            with self.journal.open("a", encoding="utf-8") as at:
                at.writelines(f"{file.file_path}\n" for file in files)

    def discard(self, io: FileIO, used: Iterable[DataFile] = ()) -> None:
        """Delete the files that were written, but not those that a commit has ``used``."""
        kept = {file.file_path for file in used}
        for files in self._made.values():
            for file in files:
                if file.file_path not in kept:
                    with contextlib.suppress(OSError):
                        io.delete(file.file_path)
        self._made.clear()

    def settle(self, table: Table) -> None:
        """After a commit: delete what calls that were killed have written, then the journal.

        A request of theirs that is still on its way cannot succeed any more, because the table has
        changed. What a snapshot names is theirs, too: their commit may have landed.
        """
        if self.journal is None or not self.journal.exists():
            return
        noted = set(self.journal.read_text("utf-8").splitlines())
        own = {file.file_path for files in self._made.values() for file in files}
        if doubtful := noted - own:
            for path in doubtful - named_files(table):
                with contextlib.suppress(OSError):
                    table.io.delete(path)
        self.journal.unlink(missing_ok=True)


def chosen_rows(
    table: Table, task: FileScanTask, stretch: Stretch, *, inside: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that lie in the range, or those that do not; every row is in one."""
    for batch in read_rows(table.metadata, table.io, task):
        mask = stretch.mask(batch)
        yield batch.filter(mask if inside else pc.invert(mask))


def fit(rows: pa.RecordBatch, schema: Schema) -> pa.Table:
    """The rows with the columns of a schema, by name; nulls where they lack one."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    columns = [
        rows.column(each.name).cast(each.type)
        if each.name in rows.schema.names
        else pa.nulls(len(rows), each.type)
        for each in wanted
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def _pieces(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in pieces, each large enough for a file."""
    held: list[pa.Table] = []
    for each in rows:
        held += [each] if each.num_rows else []
        if sum(found.nbytes for found in held) > _FLUSH_BYTES:
            yield pa.concat_tables(held).combine_chunks()
            held = []
    if held:
        yield pa.concat_tables(held).combine_chunks()


def digest(table: Table, tasks: Iterable[FileScanTask], stretch: Stretch) -> tuple[int, int]:
    """How many rows of the range the files have, and a number that equal rows share.

    The order of the rows, and how they are dealt to files, do not count.
    """
    rows = total = 0
    for task in tasks:
        for batch in chosen_rows(table, task, stretch, inside=True):
            rows += len(batch)
            total = (total + _sum_of(batch)) % _WHOLE
    return rows, total


def _sum_of(rows: pa.RecordBatch) -> int:
    hashed: Callable[[pa.RecordBatch], int] = _sum_of_texts
    if not any(pa.types.is_nested(each.type) for each in rows.schema):
        hashed = _sum_of_hashes
    return hashed(rows)


def _sum_of_hashes(rows: pa.RecordBatch) -> int:
    import polars as pl

    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    first, second = (frame.hash_rows(seed) for seed in (11, 77))
    return sum(
        (low << 64) | high for low, high in zip(first.to_list(), second.to_list(), strict=True)
    )


def _sum_of_texts(rows: pa.RecordBatch) -> int:
    texts = (repr(row).encode() for row in rows.to_pylist())
    return sum(
        int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big") for text in texts
    )

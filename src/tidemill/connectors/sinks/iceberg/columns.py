"""Whether a shadow's columns fit production's, and whether its files can be referred to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class ColumnChanges:
    """How the columns of a shadow differ from those of the table it is published into."""

    added: tuple[str, ...]  # the table lacks them
    missing: tuple[str, ...]  # the shadow lacks them: null in the range
    impossible: tuple[str, ...]  # why rows cannot be taken over, in words

    @classmethod
    def between(cls, shadow: Schema, table: Schema) -> ColumnChanges:
        """By the names of columns, which is how rows are written."""
        theirs, ours = _types(shadow), _types(table)
        needed = {each.name for each in table.fields if each.required}
        sure = {each.name for each in shadow.fields if each.required}
        other = [
            f"{name} is {theirs[name]} in the shadow and {ours[name]} in the table"
            for name in theirs
            if name in ours and theirs[name] != ours[name]
        ]
        other += [f"{name} is required in the table" for name in sorted(needed - sure)]
        return cls(
            tuple(name for name in theirs if name not in ours),
            tuple(name for name in ours if name not in theirs and name not in needed),
            tuple(other),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """What would change, in words."""
        added = [f"the column {name} would be added to the table" for name in self.added]
        return (*added, *(f"{name} would be null in the range" for name in self.missing))

    def require(self, place: str, *, accepted: bool) -> None:
        """Refuse rows that do not fit, and changes that nobody has accepted."""
        if self.impossible:
            raise SinkError(
                f"the columns of the shadow do not fit: {'; '.join(self.impossible)}",
                where=f"table {place}",
                fix="change the table's column, or cast it in the pipeline and run the backfill "
                "again; nothing was changed",
            )
        if self.words and not accepted:
            raise SinkError(
                f"the shadow has other columns than the table: {'; '.join(self.words)}",
                where=f"table {place}",
                fix="--other-schema accepts that; nothing was changed",
            )


def _types(schema: Schema) -> dict[str, pa.DataType]:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return {each.name: each.type for each in schema_to_pyarrow(schema, include_field_ids=False)}


def add_columns(table: Table, shadow: Schema, names: tuple[str, ...]) -> None:
    """Add columns of a shadow to the table, as optional ones; once more does no harm."""
    with table.update_schema() as update:
        for name in names:
            update.add_column(name, shadow.find_field(name).field_type)


def can_lend(theirs: TableMetadata, ours: TableMetadata) -> Callable[[DataFile], bool]:
    """Which data files of a table another table may refer to: they must read alike in both.

    A reader finds columns in a file by their ids, and files by the values of the partitioning that
    the file was written for. A column that was dropped is still in old files, under its id.
    """
    known = {each.name: each for each in ours.schema().fields}
    reads_alike = theirs.table_uuid == ours.table_uuid or all(
        each.name in known
        and (each.field_id, each.field_type)
        == (known[each.name].field_id, known[each.name].field_type)
        for each in theirs.schema().fields
    )
    names = {each.name for each in theirs.schema().fields}
    once = {each.field_id for schema in theirs.schemas for each in schema.fields}
    foreign = [each for each in known.values() if each.field_id in once and each.name not in names]
    laid = ours.spec().fields
    specs = {number: spec.fields for number, spec in theirs.specs().items()}

    def lends(file: DataFile) -> bool:
        parts = specs.get(file.spec_id)
        same = parts is not None and [(p.source_id, p.transform) for p in parts] == [
            (p.source_id, p.transform) for p in laid
        ]
        return reads_alike and not foreign and same

    return lends

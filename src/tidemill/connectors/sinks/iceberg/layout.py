"""Files are written with the schema and partitioning a table had when the driver started.

Both may change under a run. Files keep their place then: they are committed in a manifest of the
partitioning that they were written for. Where the table's new schema would hide or refuse what they
hold, the run stops with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata


def fit_layout(
    table: Table, files: Sequence[DataFile], written: TableMetadata | None
) -> TableMetadata:
    """The loaded metadata, fit for a commit of files that were written with older metadata.

    It names the files' partitioning as the table's own, so that their manifest gets it; the catalog
    is only sent what the commit adds. Where nothing has changed this costs nothing.
    """
    now, where = table.metadata, f"table {'.'.join(table.name())}"
    if written is not None and written.table_uuid != now.table_uuid:
        raise SinkError(
            "the table was dropped and made again while the run writes it",
            where=where,
            fix="restore the old table, or start a new run into the new one",
        )
    if written is not None and written.current_schema_id != now.current_schema_id:
        _require_columns(written.schema(), now.schema(), where)
    specs = {getattr(file, "spec_id", now.default_spec_id) for file in files}
    if specs <= {now.default_spec_id}:
        return now
    if len(specs) > 1 or not specs <= set(now.specs()):
        raise SinkError(
            "the table's partitioning was changed, and it no longer knows the one that the run's "
            "files were written for",
            where=where,
            fix="'tidemill resume' goes on with the table's new partitioning",
        )
    return now.model_copy(update={"default_spec_id": specs.pop()})


def _require_columns(written: Schema, now: Schema, where: str) -> None:
    """Raise SinkError for a column that was dropped or made required; ids tell renamed ones."""
    from pyiceberg.schema import index_by_id

    ours, theirs = index_by_id(written), index_by_id(now)
    for number, column in ours.items():
        if number not in theirs:
            raise SinkError(
                f"the column {column.name!r} was dropped from the table while the run writes it",
                where=where,
                fix="add the column again, or take it out of the pipeline's output, then "
                "'tidemill resume'",
            )
    for number, column in theirs.items():
        if column.required and not (number in ours and ours[number].required):
            raise SinkError(
                f"the column {column.name!r} was made required while the run writes the table",
                where=where,
                fix="make it optional, then 'tidemill resume'",
            )

"""Make the Iceberg tables a run writes: schema from the pipeline, partitioned by time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemill.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_DICTIONARY = 256 * 1024
"""More bytes are spent on ids in vain, at twice the time."""
_ROW_GROUP = 128 * 1024
"""Rows: a slice or a task that ends within a file decodes little of what it does not take."""
PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.dict-size-bytes": str(_DICTIONARY),
    "write.parquet.row-group-limit": str(_ROW_GROUP),
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": "5",
}
"""Commits must stay cheap however many there are: the metadata names few of its own old versions.
Their files are not deleted at once, because readers may hold them (``snapshot_expiry.py``)."""


def ensure_table(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    time: str | None,
    partition_by: str,
    *,
    region: str | None = None,
    grows: bool = False,
    told: Mapping[str, str] | None = None,
) -> Table:
    """The table, made if it is missing, with columns that fit. Running it again changes nothing.

    ``told`` are properties that a new table gets.
    """
    from pyiceberg.exceptions import (
        NamespaceAlreadyExistsError,
        NoSuchTableError,
        TableAlreadyExistsError,
    )
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace_if_not_exists(name.rsplit(".", 1)[0])
        try:
            table = catalog.create_table(
                name, schema=schema, properties=PROPERTIES | dict(told or {})
            )
        except TableAlreadyExistsError:
            table = catalog.load_table(name)
        except (OSError, TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
            raise SinkError(
                f"the table cannot be made: {error}",
                where=f"table {name}",
                fix="check the warehouse's permissions and free space, and that every output "
                "column has a type a table can hold",
            ) from None
    if grows:
        _grow(table, schema)
    _partition(table, time, partition_by, region)
    _require_fit(table, name, schema)
    return table


def _grow(table: Table, schema: pa.Schema) -> None:
    """Add the columns that the table lacks, as optional ones; the others stay as they are."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    known = set(table.schema().column_names)
    more = [field for field in schema if field.name not in known]
    if more:
        new = _pyarrow_to_schema_without_ids(pa.schema(more))
        with table.update_schema() as update:
            for field in new.fields:
                update.add_column(field.name, field.field_type)


def _partition(table: Table, time: str | None, partition_by: str, region: str | None) -> None:
    """Partition a table that is still empty; one with data keeps its layout."""
    from pyiceberg.transforms import DayTransform, HourTransform

    if time is None or partition_by == "none" or table.metadata.current_snapshot_id is not None:
        return
    if not table.spec().is_unpartitioned():
        return
    transform: Any = HourTransform() if partition_by == "hour" else DayTransform()
    with table.update_spec() as update:
        update.add_field(time, transform, f"{time}_{partition_by}")
        if region is not None:
            update.add_identity(region)


def _require_fit(table: Table, name: str, schema: pa.Schema) -> None:
    """Raise SinkError before anything is computed if the output does not fit the table."""
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        _check_pyarrow_schema_compatible,
    )

    try:
        _check_pyarrow_schema_compatible(table.schema(), schema, downcast_ns_timestamp_to_us=True)
    except (ValueError, UnsupportedPyArrowTypeException) as error:
        raise SinkError(
            f"the pipeline's output does not fit the table:\n{error}",
            where=f"table {name}",
            fix="evolve the table's columns, or write elsewhere with --into",
        ) from None

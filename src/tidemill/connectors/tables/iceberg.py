"""A reference table that is an Iceberg table of the catalog, pinned by its snapshot."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tidemill.connectors.tables.contract import ReferenceTable
from tidemill.errors import SourceError
from tidemill.iceberg.catalog import load_table
from tidemill.iceberg.extents import IcebergFacts, pin_table, require_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import ArchivePin

_BYTES = "total-files-size"


class IcebergTable(ReferenceTable):
    """A table of the catalog."""

    type: Literal["iceberg"]
    table: str = Field(description="namespace.table in the catalog.")

    def fix(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The current snapshot."""
        del base
        table = load_table(catalog, self.table, where)
        pin, snapshot = pin_table(self.table, table.metadata), table.current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        size = int(summary[_BYTES] or 0) if summary is not None and _BYTES in summary else 0
        return replace(pin, facts={**pin.facts, "bytes": size})

    def load(self, pin: ArchivePin, catalog: Catalog, where: str) -> pa.Table:
        """Read the pinned snapshot, if the table still has it."""
        table = load_table(catalog, self.table, where)
        kept = asdict(IcebergFacts(pin.facts["schema_id"], pin.facts["table_uuid"]))
        require_snapshot(table, replace(pin, facts=kept))
        wanted = tuple(self.columns) or ("*",)
        try:
            if pin.snapshot is None:
                return table.scan(selected_fields=wanted).to_arrow().slice(0, 0)
            return table.scan(snapshot_id=pin.snapshot, selected_fields=wanted).to_arrow()
        except FileNotFoundError as error:
            raise SourceError(
                f"a file of its snapshot {pin.snapshot} is gone: {error}",
                where=where,
                fix="restore the file, or start a new run",
            ) from None

    @classmethod
    def describe(cls, pin: ArchivePin) -> str:
        """The snapshot."""
        return f"snapshot {pin.snapshot}"

"""The reference tables of a plan: fixed as they are now, and read once to find mistakes early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.iceberg.catalog import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import TablePin


@dataclass(frozen=True)
class OpenTable:
    """A table with its pin and its columns."""

    pin: TablePin
    schema: pa.Schema

    @property
    def columns(self) -> dict[str, str]:
        """The types of its columns, and what they are for."""
        return {each.name: f"{each.type} {each.metadata or ''}" for each in self.schema}


def open_tables(loaded: LoadedConfig, names: Iterable[str]) -> dict[str, OpenTable]:
    """Fix every table of a pipeline. A pipeline without tables opens nothing here."""
    names = list(names)
    if not names:
        return {}
    from tidemill.connectors.tables.contract import pin_table

    catalog = open_catalog(loaded)
    found = {name: pin_table(loaded, name, catalog) for name in names}
    return {name: OpenTable(pin, rows.schema) for name, (pin, rows) in found.items()}

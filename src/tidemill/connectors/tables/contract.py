"""The contract of a reference table: fix which rows it has now, and read exactly those."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tidemill.config.table import TABLES, TableConfig
from tidemill.connectors.tables.shaping import shape
from tidemill.errors import PlanError
from tidemill.planning.manifest import TablePin

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import ArchivePin

LARGEST = 2_000_000_000
"""Bytes of a table's files. Each batch reads all rows, and a run keeps a copy of them."""


class ReferenceTable(TableConfig):
    """A kind of reference table; its section in the YAML is a subclass. Driver only."""

    @abstractmethod
    def fix(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """The state of the table now."""

    @abstractmethod
    def load(self, pin: ArchivePin, catalog: Catalog, where: str) -> pa.Table:
        """All rows of the pinned state; a SourceError if that state is gone or has changed."""

    @classmethod
    def size(cls, pin: ArchivePin) -> int:
        """The bytes of the pinned state's files, compressed as they are."""
        return int(pin.facts.get("bytes", 0))

    @classmethod
    @abstractmethod
    def describe(cls, pin: ArchivePin) -> str:
        """The pinned state in a few words."""


def section_of(pin: TablePin) -> ReferenceTable:
    """The section of the YAML from which the table was pinned, whatever the YAML says by now."""
    found: type[ReferenceTable] = TABLES.find(pin.state.kind)
    return found.model_validate(pin.section)


def pin_table(loaded: LoadedConfig, name: str, catalog: Catalog) -> tuple[TablePin, pa.Table]:
    """Fix a table of the YAML as it is now, and read its rows."""
    section = loaded.config.tables[name]
    assert isinstance(section, ReferenceTable)
    return pin_section(section, name, loaded.base, catalog)


def pin_again(
    pin: TablePin, name: str, base: Path, catalog: Catalog
) -> tuple[TablePin, pa.Table] | None:
    """Fix the table as it is by now, and read its rows; None if it has not changed."""
    section, where = section_of(pin), f"table {name}"
    if section.fix(catalog, base, where) == pin.state:
        return None
    return pin_section(section, name, base, catalog)


def pin_section(
    section: ReferenceTable, name: str, base: Path, catalog: Catalog
) -> tuple[TablePin, pa.Table]:
    """Fix a table as it is now, and read its rows."""
    state = section.fix(catalog, base, f"table {name}")
    size = section.size(state)
    if size > LARGEST:
        raise PlanError(
            f"its files have {size / 1e9:.1f} GB, more than {LARGEST / 1e9:.0f} GB: every batch "
            "reads all rows of a reference table",
            where=f"table {name}",
            fix="make a smaller table of what the pipeline needs, or make it a stream",
        )
    written = section.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    written["type"] = state.kind
    pin = TablePin(state, written)
    rows = read_pinned(pin, name, catalog)
    return TablePin(state, written, rows.num_rows, size), rows


def read_pinned(pin: TablePin, name: str, catalog: Catalog) -> pa.Table:
    """The rows of a pinned table, as pipelines see them."""
    section, where = section_of(pin), f"table {name}"
    return shape(section, section.load(pin.state, catalog, where), where)


def describe_table(pin: TablePin) -> str:
    """Which state of the table a run reads, in a few words."""
    return section_of(pin).describe(pin.state)

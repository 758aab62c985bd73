"""What was published into a table, and reverted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.connectors.sinks.iceberg.changes import read_changes
from tidemill.iceberg.catalog import load_table, open_metadata

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.replacing import Change


def read_history(loaded: LoadedConfig, table: str) -> list[Change]:
    """All publishes and reverts of a table, the oldest first, whoever made them from where."""
    found = load_table(open_metadata(loaded), table, f"table {table}")
    return read_changes(found.metadata.properties)

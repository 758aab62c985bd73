"""A table's transaction whose metadata is worked out once per change."""

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


class SteadyTransaction(Transaction):
    """One attempt against the metadata that was loaded.

    A snapshot asks for the metadata a dozen times, and pyiceberg copies all of it each time: half
    of what a small commit takes.
    """

    def __init__(self, table: Table) -> None:
        """Nothing is staged yet."""
        super().__init__(table)
        self._known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """With all that is staged."""
        if self._known is None or self._known[0] is not self._updates:
            self._known = (self._updates, super().table_metadata)
        return self._known[1]

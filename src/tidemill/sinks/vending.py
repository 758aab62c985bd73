"""Credentials that a catalog hands out with a table end after an hour or so; a live run does not.

The driver loads the table for every commit and gets new ones each time. Executors write with what
they were given when the run started, so they ask the catalog themselves before that gets old.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.archive.catalog import connect

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_FRESH = 300.0
"""Seconds for which credentials are used. The shortest that clouds hand out last for 15 minutes."""
_RENEWED: dict[str, tuple[float, FileIO]] = {}
"""By table, in a worker's process, which runs many tasks."""


@dataclass(frozen=True)
class Vending:
    """Where an executor gets a table's credentials anew."""

    table: str
    since: float  # when those at hand were given
    catalog: str
    properties: dict[str, str] = field(repr=False)  # may hold secrets

    @classmethod
    def of(cls, table: Table) -> Vending | None:
        """Driver: of a table whose catalog adds something to what the YAML says; else None."""
        known = {**table.catalog.properties, **table.metadata.properties}
        given = {key for key, value in table.io.properties.items() if known.get(key) != value}
        if not given:
            return None
        catalog = table.catalog
        return cls(".".join(table.name()), time.time(), catalog.name, dict(catalog.properties))

    def renew(self, io: FileIO) -> FileIO:
        """Executor: the table's files with credentials that are not old; ``io`` were the first."""
        at, newest = _RENEWED.get(self.table, (self.since, io))
        if time.time() - max(at, self.since) < _FRESH:
            return newest if at > self.since else io
        newest = connect(self.catalog, self.properties).load_table(self.table).io
        _RENEWED[self.table] = (time.time(), newest)
        return newest

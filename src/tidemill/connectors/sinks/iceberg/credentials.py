"""Credentials that a catalog hands out with a table end after an hour or so; a live run does not.

The driver loads the table for every commit and gets new ones each time. Executors write with what
they were given when the run started, so they ask the catalog themselves before that gets old.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.iceberg.catalog import connect

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_FRESH = 300.0
"""Seconds for which credentials are used. The shortest that clouds hand out last for 15 minutes."""
_AGAIN = 30.0
"""Seconds until the catalog is asked again if it did not answer."""
_RENEWED: dict[tuple[str, ...], tuple[float, FileIO]] = {}
"""By catalog and table, in a worker's process, which runs many tasks."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Vending:
    """Where an executor gets a table's credentials anew."""

    table: str
    since: float  # when those at hand were given
    catalog: str
    properties: dict[str, str] = field(repr=False)  # may hold secrets

    @classmethod
    def of(cls, table: Table) -> Vending | None:
        """Driver: where to renew them; None if the catalog adds nothing to what the YAML says."""
        known = {**table.catalog.properties, **table.metadata.properties}
        given = {key for key, value in table.io.properties.items() if known.get(key) != value}
        if not given:
            return None
        catalog = table.catalog
        return cls(".".join(table.name()), time.time(), catalog.name, dict(catalog.properties))

    def renew(self, io: FileIO) -> FileIO:
        """Executor: the table's files with fresh credentials; ``io`` has those of the run's start.

        A catalog that does not answer is asked again later: the credentials at hand may well hold
        that long, and if they do not, the storage says so.
        """
        key = (self.table, self.catalog, *(f"{k}={v}" for k, v in sorted(self.properties.items())))
        at, newest = _RENEWED.get(key, (self.since, io))
        if at <= self.since:
            at, newest = self.since, io
        now = time.time()
        if now - at < _FRESH:
            return newest
        try:
            newest, at = connect(self.catalog, self.properties).load_table(self.table).io, now
        except Exception as error:
            at = now - _FRESH + _AGAIN
            _LOG.warning(
                "the credentials of %s could not be renewed: %s", self.table, type(error).__name__
            )
        _RENEWED[key] = (at, newest)
        return newest

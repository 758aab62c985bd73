"""Read reference tables again while a live run runs, and decide which batch sees the new rows."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.connectors.tables.contract import pin_again, section_of
from tidemill.connectors.tables.shaping import fit
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.journal import read_repeats
from tidemill.runfolder.offset_log import last_batch
from tidemill.types import micros_of, show_duration

if TYPE_CHECKING:
    from tidemill.runtime.driving.frames import Work

_LOG = logging.getLogger(__name__)
_TRIES = 3
"""How often in a row a table may be unreadable: it may be just being written."""


class TableWatch:
    """The reference tables of a live run that have ``refresh:``.

    Spark calls :meth:`look` at the end of each batch and begins the next one when it returns. So
    what is decided there is written down before the batch that it is for. A batch that runs again,
    in this process or another, finds the decision and decides nothing again.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        sections = {name: section_of(pin) for name, pin in work.manifest.tables.items()}
        self._every = {
            name: micros_of(section.refresh)
            for name, section in sections.items()
            if section.refresh is not None and not work.manifest.times.ends
        }
        self._looked: dict[str, int] = {}
        self._failed = dict.fromkeys(self._every, 0)

    def look(self, batch: int) -> None:
        """Read what is due, after a batch is committed and before the next one begins."""
        if not self._every or self._has_begun(batch + 1):
            return
        for name, every in self._every.items():
            versions, now = DecidedVersions(self.work.folder.path, name), time.time_ns() // 1_000
            looked = self._looked.get(name, versions.newest().read)
            if now - looked >= every:
                self._looked[name] = now
                self._try(name, versions, batch + 1, now)
                versions.forget(batch - 2 * self.work.manifest.resources.keep_batches)

    def _has_begun(self, batch: int) -> bool:
        """Whether a batch ran before the run was rewound: what it saw is decided already."""
        folder = self.work.folder
        return batch in read_repeats(folder.path) or last_batch(folder.checkpoint) >= batch

    def _try(self, name: str, versions: DecidedVersions, batch: int, now: int) -> None:
        """Read a table; one that cannot be read stays as it is, until that is too often."""
        try:
            self._read(name, versions, batch, now)
            self._failed[name] = 0
        except Exception as error:
            self._failed[name] += 1
            if self._failed[name] >= _TRIES:
                raise
            every = show_duration(timedelta(microseconds=self._every[name]))
            _LOG.warning("table %s keeps its rows for another %s: %s", name, every, error)

    def _read(self, name: str, versions: DecidedVersions, batch: int, now: int) -> None:
        newest = versions.newest()
        found = pin_again(newest.pin, name, self.work.loaded.base, open_catalog(self.work.loaded))
        if found is not None:
            pin, rows = found
            fitting = fit(rows, versions.rows(newest).schema, f"table {name}")
            versions.decide(batch, versions.keep(fitting, pin, now))

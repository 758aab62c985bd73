"""New instances of a live run: which batch sees them first, or which cohort catches them up."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tidemill.connectors.tables.contract import pin_again, pin_section, section_of
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.instances.arriving import sort_arrivals
from tidemill.planning.instances.book import read_book
from tidemill.planning.instances.values import hull
from tidemill.planning.meeting import is_gathered
from tidemill.runfolder.cohorts import Cohort, Cohorts
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import new_run_id
from tidemill.runtime.driving.meeting import OneRun
from tidemill.runtime.instances.opening import rows_of, with_moments

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.planning.instances.book import Book
    from tidemill.planning.instances.values import Instance
    from tidemill.planning.manifest import InstancesPin, TablePin
    from tidemill.runfolder.decided_versions import Version
    from tidemill.runtime.driving.frames import Work
    from tidemill.runtime.registry import Registry

_LOG = logging.getLogger(__name__)
_EVERY = 1.0
_MOST = 2
"""So many cohorts are caught up at a time; later instances wait for a place."""


class Gathering:
    """Looks at the table of a live run's instances between its batches.

    What is decided is written down before the batch that it is for, and never for a batch that has
    begun. Which instances wait is not written down: a new driver looks at the table again.
    """

    def __init__(self, work: Work, registry: Registry, pin: InstancesPin) -> None:
        self.work, self.registry, self.pin = work, registry, pin
        self.live, self.cohorts = OneRun(work.folder, work.manifest), Cohorts(work.folder.path)
        self.versions = DecidedVersions(work.folder.path, pin.argument)
        self._looked = 0.0
        self._table: tuple[TablePin, pa.Table | None] = (pin.table, None)
        self._waits: dict[str, int] = {}  # since when, µs

    @cached_property
    def _catalog(self) -> Catalog:
        return open_catalog(self.work.loaded)

    def look(self, batch: int) -> None:
        """After a batch is committed, and before the next one begins. Never stops the run."""
        now = time.monotonic()
        if now - self._looked < _EVERY or batch + 1 in self.versions.starts():
            return
        self._looked = now
        try:
            self._look(batch)
        except Exception as error:
            _LOG.warning("the table of the instances cannot be read now: %s", error)

    def _look(self, batch: int) -> None:
        newest = self.versions.newest()
        rows = self._read(newest)
        book = read_book(rows, self.pin, self._known(newest))
        withdrawn = self.registry.withdrawn(self.work.manifest.pipeline)
        skews = {name: pin.times.skew for name, pin in self.work.manifest.sources.items()}
        seen = {str(each.id) for each in self._seen(newest)}
        cohorts = self.cohorts.cohorts()
        taken = {each for cohort in cohorts for each in cohort.ids}
        found = sort_arrivals(book.valid, seen | taken, withdrawn, self.live.decided(batch), skews)
        self._take_in(batch, newest, book, found.in_time, withdrawn)
        self._gather(book, found.late, len(cohorts))

    def _read(self, newest: Version) -> pa.Table:
        """The rows of the table as it is now; it is read again only if it has changed."""
        known, rows = self._table
        catalog, name = self._catalog, f"of the instances {self.pin.argument}"
        found = None
        if rows is not None:
            found = pin_again(known, name, self.work.loaded.base, catalog)
            if found is None:
                return rows
        if found is None:
            found = pin_section(section_of(newest.pin), name, self.work.loaded.base, catalog)
        moments = with_moments(found[1], (self.pin.start, self.pin.end), name)
        self._table = (found[0], moments)
        return moments

    def _seen(self, newest: Version) -> list[Instance]:
        return read_book(self.versions.rows(newest), self.pin).valid

    def _known(self, newest: Version) -> dict[object, Instance]:
        """All instances that this run has ever taken in: they never change."""
        known = self._seen(newest)
        for cohort in self.cohorts.cohorts():
            rows = self.versions.rows(replace(newest, digest=cohort.rows))
            known += read_book(rows, self.pin).valid
        return {each.id: each for each in known}

    def _take_in(
        self,
        batch: int,
        newest: Version,
        book: Book,
        added: list[Instance],
        withdrawn: dict[str, int],
    ) -> None:
        """Let the next batch see instances of which no row was read, and no withdrawn ones."""
        rows = self.versions.rows(newest)
        ids = [str(each) for each in rows.column(self.pin.id).to_pylist()]
        stays = [name not in withdrawn for name in ids]
        if not added and all(stays):
            return
        import pyarrow as pa

        new = rows_of(book, {str(each.id) for each in added})
        joined = pa.concat_tables([rows.filter(pa.array(stays, pa.bool_())), fit(new, rows.schema)])
        kept = self.versions.keep(joined.combine_chunks(), self._table[0], _now())
        self.versions.decide(batch + 1, kept)

    def _gather(self, book: Book, late: list[Instance], cohorts: int) -> None:
        """Make a cohort of those that wait, once the first has waited long enough."""
        now = _now()
        self._waits = {str(each.id): self._waits.get(str(each.id), now) for each in late}
        is_due = bool(late) and is_gathered(
            min(self._waits.values()), now, self.pin.catch_up.gather
        )
        running = [n for n in range(1, cohorts + 1) if not self.cohorts.is_over(n)]
        if not is_due or len(running) >= _MOST:
            return
        newest = self.versions.newest()
        rows = fit(rows_of(book, self._waits.keys()), self.versions.rows(newest).schema)
        start, end = hull(late)
        cohort = Cohort(
            number=cohorts + 1,
            child=new_run_id(datetime.now(UTC)),
            argument=self.pin.argument,
            ids=tuple(sorted(self._waits)),
            start=start,
            end=end,
            rows=self.versions.keep(rows, newest.pin, now).digest,
            created=now,
        )
        self.cohorts.gather(cohort)


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a later state of the table, with the columns that the run's instances have."""
    import pyarrow as pa

    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def _now() -> int:
    return time.time_ns() // 1_000

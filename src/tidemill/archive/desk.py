"""The maintenance commands of one stream's archive: info, check, compact, expire."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.archive.positions import Span, require_column, require_positions
from tidemill.errors import ConfigError, PlanError, SourceError, nearest
from tidemill.iceberg.catalog import load_table, open_catalog, open_metadata
from tidemill.types import TimeRange, micros_of, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.archive.inspection import CheckReport
    from tidemill.archive.maintenance import Compacted, Expired
    from tidemill.archive.overview import ArchiveInfo
    from tidemill.config.archive import TableArchive
    from tidemill.config.loader import LoadedConfig

TARGET_SIZE = 128_000_000


class ArchiveDesk:
    """What can be done with the Iceberg archive of a stream, beside running it. No Spark."""

    def __init__(self, loaded: LoadedConfig, stream: str) -> None:
        """Refuse an unknown stream, and a stream without an Iceberg archive."""
        self.loaded, self.stream = loaded, stream
        self.archive = self._archive()

    def info(self) -> ArchiveInfo:
        """What the archive holds and how far it follows its log, from metadata alone."""
        from tidemill.archive.overview import info

        table = self._table(open_metadata(self.loaded))
        return info(table, self.archive, to_micros(datetime.now(UTC)))

    def check(self, start: datetime | None = None, end: datetime | None = None) -> CheckReport:
        """Check that every offset is there once and in order.

        ``start`` and ``end`` limit the check to rows with an ingest time in ``[start, end)``.
        """
        from tidemill.archive.inspection import check

        if start is not None and end is not None:
            TimeRange(start, end)
        table = self._table(open_catalog(self.loaded))
        require_positions(table, self.archive, self._where)
        low, high = (None if moment is None else to_micros(moment) for moment in (start, end))
        return check(table, self.archive, Span(low, high))

    def compact(
        self,
        older_than: timedelta = timedelta(hours=2),
        target_size: int = TARGET_SIZE,
        *,
        dry_run: bool = False,
        on_progress: Callable[[Compacted], None] = lambda progress: None,
    ) -> Compacted:
        """Rewrite the small files of ingest hours that ended ``older_than`` before the frontier.

        ``on_progress`` is called after each commit.
        """
        from tidemill.archive.maintenance import compact

        if target_size <= 0:
            raise PlanError(f"--target-size {target_size} is not a size", fix="say 128MB")
        catalog = open_catalog(self.loaded)
        self._table(catalog)
        return compact(
            catalog,
            self.archive,
            margin=micros_of(older_than),
            target=target_size,
            dry_run=dry_run,
            on_progress=on_progress,
        )

    def expire(
        self, older_than: timedelta = timedelta(days=7), keep: int = 10, *, dry_run: bool = False
    ) -> Expired:
        """Expire snapshots older than ``older_than``, and delete files that only they needed.

        The ``keep`` newest snapshots stay, and so does every snapshot that a run has pinned.
        """
        from tidemill.archive.maintenance import expire

        if keep < 1:
            raise PlanError(f"--keep {keep} would keep no snapshot", fix="keep 1 or more")
        catalog = open_catalog(self.loaded)
        self._table(catalog)
        before = to_micros(datetime.now(UTC) - older_than) // 1_000
        return expire(catalog, self.archive, before=before, keep=keep, dry_run=dry_run)

    @property
    def _where(self) -> str:
        return f"stream {self.stream}"

    def _archive(self) -> TableArchive:
        streams = self.loaded.config.streams
        if self.stream not in streams:
            raise ConfigError(
                f"there is no stream {self.stream!r}", fix=nearest(self.stream, streams)
            )
        found = streams[self.stream].archive
        table = None if found is None else found.as_table()
        if table is not None:
            return table
        kept = "it has none" if found is None else f"its archive is {found.type}"
        raise PlanError(
            f"the stream has no Iceberg archive: {kept}",
            where=self._where,
            fix="give it archive: {type: iceberg, table: …, ingest_time: …} in the YAML",
        )

    def _table(self, catalog: Catalog) -> Table:
        """The archive's table, with the column that orders it."""
        try:
            table = load_table(catalog, self.archive.table, self._where)
        except SourceError as error:
            if "table" not in error.facts:
                raise
            fix = f"'tidemill archive run {self.stream}' makes it; {error.fix}"
            raise SourceError(error.message, where=error.where, fix=fix, **error.facts) from None
        require_column(table, "ingest_time", self.archive.ingest_time, self._where)
        return table

"""A table of the catalog as a sink: data files on executors, one commit per batch."""

from __future__ import annotations

import contextlib
import pickle
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tidemill.archive.progress import name_of, read_progress
from tidemill.connectors.archives.opening import archive_of
from tidemill.connectors.sinks.contract import LastCommit, Sink, SinkRun, View, arrow_schema
from tidemill.connectors.sinks.iceberg.changes import published_in, tags_of
from tidemill.connectors.sinks.iceberg.commit import Known, commit_files
from tidemill.connectors.sinks.iceberg.dropping import (
    drop_table,
    find_borrowers,
    uses_files_of,
)
from tidemill.connectors.sinks.iceberg.filled import spans_with_files, unit_of
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.snapshot_expiry import Wastebook, run_of
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.replacing import place_beside
from tidemill.connectors.sinks.stamp import read_stamps
from tidemill.connectors.sinks.writing import Target, write_files
from tidemill.errors import PlanError, RunError, SinkError
from tidemill.iceberg.catalog import find_table, unset_tags
from tidemill.planning.gaps import Unit
from tidemill.rows.verdict import DEAD_SCHEMA, SIDE_SCHEMA
from tidemill.runfolder.owner import owner_properties

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.iceberg.commit import LogProgress
    from tidemill.connectors.sinks.replacing import Production
    from tidemill.connectors.sinks.stamp import BatchStamp
    from tidemill.planning.manifest import SourcePin


_AT_ONCE = 4
_READ_AHEAD = 32 * 1024 * 1024
"""Bytes of files: a larger file is read alone."""


class IcebergTable(Sink):
    """A table of a run: its pin says how it is made, the catalog everything else."""

    def __init__(self, run: SinkRun, pin: SinkPin) -> None:
        """Nothing is opened yet."""
        self.run, self.pin, self.place = run, pin, pin.place
        self._target: Target | None = None

    def prepare(self, at_start: BatchStamp | None) -> None:
        """Make the table if it is missing. An archive's table gets the columns that it lacks."""
        table, order = self.ensure(), tuple(self.pin.own["order"])
        self._target = Target.of(table, self.pin.time, self.run.manifest.kept, order)
        self.at_start = at_start

    def ensure(self) -> Table:
        """The table, made if it is missing, with columns that fit."""
        return ensure_table(
            self.run.catalog,
            self.pin.table,
            self.schema(),
            self.pin.time,
            self.pin.own["partition_by"],
            region=self.pin.own["region"],
            grows=not self.run.manifest.code.is_there,
            told=self._owner(),
        )

    def _owner(self) -> dict[str, str]:
        """A shadow says whose it is: others who share the catalog must not delete it."""
        is_shadow = place_beside(self.place, self.run.run) is not None
        return owner_properties(self.run.loaded.home) if is_shadow else {}

    def schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema(self.pin)

    def destination(self, batch: int = -1) -> Target:
        """The table as it was prepared: later changes of its schema do not reach the run."""
        if self._target is None:
            raise RunError(f"the table {self.place} is written before it is prepared")
        return self._target

    def commit(self, stamp: BatchStamp, written: Sequence[bytes]) -> bool:
        """Put the batch's files into the table."""
        return self.commit_files(stamp, files_of(written))

    def commit_files(
        self, stamp: BatchStamp, files: Sequence[DataFile], followed: LogProgress | None = None
    ) -> bool:
        """Put these files into the table; an archive says how far it ``followed`` its log."""
        keep = self.run.loaded.config.keep_snapshots
        waste = Wastebook.of(self.run.loaded.home, self.place, self.run.run, keep)
        known = Known(self.at_start, self.destination().metadata, waste, self.run.folder)
        return commit_files(self.run.catalog, self.place, stamp, files, followed, known=known)

    def discard(self, written: Sequence[bytes]) -> None:
        """Delete the files; no snapshot names them."""
        for file in files_of(written):
            with contextlib.suppress(OSError):
                self.destination().io.delete(file.file_path)

    def stamps(self) -> Mapping[str, LastCommit]:
        """Stamps are properties of the table; the time is that of the run's newest snapshot."""
        table = self.existing()
        return {} if table is None else last_commits(table)

    def rows_in(self, span: tuple[int, int]) -> int:
        """Metadata tells it; one column is read where a file only straddles the span."""
        table = self.existing()
        return 0 if table is None else count_rows(table, self.pin.time, span)

    def unit(self) -> Unit:
        """What the table is partitioned by now; one that is not there yet, what it will be."""
        table, planned = self.existing(), self.pin.own["partition_by"]
        if table is None or self.pin.time is None:
            return Unit(planned) if planned in tuple(Unit) else Unit.HOUR
        return unit_of(table, self.pin.time)

    def has_rows(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        """A file that lies in one span tells it; where files only straddle, one column is read."""
        table, time = self.existing(), self.pin.time
        if table is None or time is None or not spans:
            return [False for _ in spans]
        known = spans_with_files(table, time, spans)
        return [
            bool(self.rows_in(s)) if k is None else k for s, k in zip(spans, known, strict=True)
        ]

    def scan(
        self, columns: Sequence[str], span: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """File by file, with what deletes and the schema of today make of it."""
        table = self.existing()
        return iter(()) if table is None else scan_table(table, self.pin.time, columns, span)

    def view(self) -> View | None:
        """The current snapshot; its files stay for as long as the snapshot does."""
        table = self.existing()
        if table is None:
            return None
        return View(
            table.schema().as_arrow(),
            partial(scan_table, table, self.pin.time),
            table.metadata.current_snapshot_id,
            read_stamps(table.metadata.properties),
            published_in(table.metadata),
        )

    def read(self) -> pa.Table:
        """The rows of the current snapshot."""
        return self.run.catalog.load_table(self.place).scan().to_arrow()

    def is_there(self) -> bool:
        """Also if the table's metadata is gone: its entry in the catalog is then left to delete."""
        try:
            return self.existing() is not None
        except FileNotFoundError:
            return True

    def lent_to(self, places: Iterable[str]) -> str | None:
        """The table that has this one's location, or files below it, as `add_files` makes it."""
        table = find_table(self.run.catalog, self.place)
        if table is None:
            return None
        catalog, run = self.run.catalog, self.run.run
        beside = place_beside(self.place, run) or self.place
        others = [each for each in places if each != self.place]
        for other in find_borrowers(catalog, beside, run, others):
            is_own = other.metadata.table_uuid == table.metadata.table_uuid
            if not is_own and uses_files_of(other, table.metadata.location):
                return ".".join(other.name())
        return None

    def production(self, run: str, output: str) -> Production:
        """The table without the run's id in its name."""
        from tidemill.connectors.sinks.iceberg.production import IcebergProduction

        place, loaded = place_beside(self.place, run), self.run.loaded
        if place is None:
            raise SinkError(
                f"the run {run} wrote directly into {self.place}, which is no shadow",
                where=f"output {output}",
                fix="run the backfill without --into to get a shadow that can be published",
            )

        def waste(by: str) -> Wastebook:
            return Wastebook.of(loaded.home, place, by, loaded.config.keep_snapshots)

        return IcebergProduction(self.run.catalog, place, self.place, self.pin.time, waste)

    def drop(self) -> None:
        """Delete the table with its files, its tags on production, and the list of waste."""
        beside = place_beside(self.place, self.run.run)
        production = None if beside is None else find_table(self.run.catalog, beside)
        if production is not None:
            unset_tags(production, tags_of(self.run.run))
        drop_table(self.run.catalog, self.place)
        keep = self.run.loaded.config.keep_snapshots
        book = Wastebook.of(self.run.loaded.home, self.place, self.run.run, keep)
        if "/" not in self.place:  # the list lies directly below the project's folder
            shutil.rmtree(book.folder, ignore_errors=True)

    def require_apart(self, sources: Mapping[str, SourcePin]) -> None:
        """Compare ids, because the catalog may know a source's table by another name, too."""
        table = self.existing()
        if table is None:
            return
        known = str(table.metadata.table_uuid)
        for pin in sources.values():
            if pin.archive is not None and archive_of(pin.archive).is_table(pin.archive, known):
                raise PlanError(
                    f"the table {self.place!r} is the pipeline's own source {pin.location}: it "
                    "would read its own rows",
                    where=f"stream {pin.stream}",
                    fix="write into another table",
                )
        require_outside(table.metadata.location, f"the table {self.place!r}", sources)
        reached = read_progress(table.metadata)
        if reached:
            raise PlanError(
                f"the table {self.place!r} is the archive of the topic "
                f"{name_of(reached) or 'of a stream'}: 'tidemill archive run' writes it, and a "
                "pipeline's rows would stand among its records",
                fix="write into another table",
            )

    def existing(self) -> Table | None:
        """The table as it is now, if it is there."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
            return self.run.catalog.load_table(self.place)
        return None


class SideTable(IcebergTable):
    """The table of a run's late or dead rows, which the driver writes itself.

    The table is made with its first row, so a missing table is an empty one. A driver that is
    killed between the two leaves a table without a stamp, which says that no batch is in it.
    """

    def __init__(self, run: SinkRun, name: str) -> None:
        """A table of the catalog, whatever the outputs are; its rows go by their ingest time."""
        super().__init__(run, table_pin(name, "", "ingest_time"))

    def schema(self) -> pa.Schema:
        """The columns of side files; a dead table also says where the pipeline's code failed."""
        is_dead = self.place == self.run.manifest.outputs.dead_table
        return DEAD_SCHEMA if is_dead else SIDE_SCHEMA

    def ensure(self) -> Table:
        """The table, made if it is missing. A dead table of an earlier Tidemill gets columns."""
        found, schema = self.existing(), self.schema()
        grows = found is not None and {*SIDE_SCHEMA.names} <= {*found.schema().column_names}
        return ensure_table(self.run.catalog, self.place, schema, None, "none", grows=grows)

    def prepare(self, at_start: BatchStamp | None) -> None:
        """Check the table if it is there; it is not made."""
        self.at_start = at_start
        if self.existing() is not None:
            self._target = Target.of(self.ensure(), None, None)

    def append(self, stamp: BatchStamp, rows: pa.Table) -> None:
        """Write the rows and commit them; without rows there is no commit, and no table.

        A table that this driver has seen is not made again: somebody has deleted it with its rows.
        """
        if not len(rows):
            return
        is_new = self._target is None
        table = self.ensure() if is_new else self.run.catalog.load_table(self.place)
        self._target = Target.of(table, None, None)
        self.commit_files(stamp, write_files(table.metadata, table.io, rows.combine_chunks()))

    def read(self) -> pa.Table:
        """The rows; none if there is no table."""
        return self.schema().empty_table() if self.existing() is None else super().read()


def last_commits(table: Table) -> dict[str, LastCommit]:
    """The last commit of every run in a table, by run."""
    times: dict[str, int] = {}
    for snapshot in table.metadata.snapshots:
        run = run_of(snapshot)
        if run is not None:
            times[run] = max(snapshot.timestamp_ms, times.get(run, 0))
    found = read_stamps(table.metadata.properties)
    return {run: LastCommit(stamp, times.get(run, 0)) for run, stamp in found.items()}


def open_sides(run: SinkRun) -> dict[str, SideTable]:
    """The tables of a run's late and dead rows, by name; an archive's run has none."""
    names = (run.manifest.outputs.late_table, run.manifest.outputs.dead_table)
    return {name: SideTable(run, name) for name in names if name}


def files_of(written: Sequence[bytes]) -> list[DataFile]:
    """Data files as tasks described them; the bytes come through Spark, never from a disk."""
    files: list[DataFile] = [pickle.loads(each) for each in written]
    return sorted(files, key=lambda file: str(file.file_path))


def require_outside(location: str, what: str, sources: Mapping[str, SourcePin]) -> None:
    """Raise PlanError if a table would be written into a folder that a source reads."""
    for pin in sources.values():
        if pin.archive is not None and archive_of(pin.archive).covers(pin.archive, location):
            raise PlanError(
                f"{what} would lie inside of the pipeline's own source, the folder {pin.location}: "
                "it would read its own rows",
                where=f"stream {pin.stream}",
                fix="move catalog.warehouse out of that folder, or name a narrower archive.path",
            )


def scan_table(
    table: Table, time: str | None, columns: Sequence[str], span: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a loaded table with a time in the span (µs), a few files in memory at a time.

    Given all files at once, pyiceberg reads ahead of whoever takes the rows, without a limit. Here
    only small files are read ahead, because a file takes a round trip of the storage.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    kept = AlwaysTrue() if time is None or span is None else times_in(time, span)
    scan = table.scan(kept, selected_fields=tuple(columns))
    wanted = schema_to_pyarrow(scan.projection())
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    waiting: deque[tuple[int, Future[list[pa.RecordBatch]]]] = deque()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for task in scan.plan_files():
            size = task.file.file_size_in_bytes
            waiting.append((size, pool.submit(_read_file, reader, task, wanted)))
            while sum(each for each, _ in waiting) > _READ_AHEAD or len(waiting) > _AT_ONCE:
                yield from waiting.popleft()[1].result()
        for _, read in waiting:
            yield from read.result()


def _read_file(reader: ArrowScan, task: FileScanTask, wanted: pa.Schema) -> list[pa.RecordBatch]:
    return [batch.cast(wanted) for batch in reader.to_record_batches([task])]


def count_rows(table: Table, time: str | None, span: tuple[int, int]) -> int:
    """The rows of all files that hold a row of the range; 0 only if no row is of the range.

    Without ``time`` all rows count. Metadata tells it, unless a file only straddles the range.
    """
    from pyiceberg.expressions import AlwaysTrue

    if table.metadata.current_snapshot_id is None:
        return 0
    if time is not None and not _has_times(table, time):
        return 0  # the output does not fit the table: the run says so
    if time is None:
        scan = table.scan(AlwaysTrue())
        return sum(task.file.record_count for task in scan.plan_files())
    scan = table.scan(times_in(time, span), selected_fields=(time,), limit=1)
    rows = sum(task.file.record_count for task in scan.plan_files())
    return rows if rows and len(scan.to_arrow()) else 0


def times_in(time: str, span: tuple[int, int]) -> BooleanExpression:
    """The rows whose time is in the span (µs); times may have a zone or none."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

    low, high = span
    return And(GreaterThanOrEqual(term=time, value=low), LessThan(term=time, value=high))


def _has_times(table: Table, column: str) -> bool:
    from pyiceberg.types import TimestampType, TimestamptzType

    fields = {field.name: field.field_type for field in table.schema().fields}
    return isinstance(fields.get(column), TimestampType | TimestamptzType)

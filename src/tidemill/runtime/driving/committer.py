"""One batch after it ran: write its output, take its side files, commit both exactly once."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.archive.progress import Reached, read_reached
from tidemill.connectors.logs.contract import home_of
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, Followed, Known, commit_files
from tidemill.connectors.sinks.iceberg.snapshot_expiry import KEEP_SNAPSHOTS, Wastebook
from tidemill.connectors.sinks.writing import Target, write_files
from tidemill.errors import RunError, SourceError
from tidemill.folds.state import StateFiles
from tidemill.iceberg.durable import sync_files
from tidemill.reading.sidefile import Counts, read_side_files, remove_side_files
from tidemill.rows.verdict import is_dead
from tidemill.runtime.driving.rewind import require_same
from tidemill.runtime.driving.taken_slices import (
    TakenSlice,
    forget_slices,
    read_batch,
    slices_taken,
)
from tidemill.runtime.registry import BatchRecord
from tidemill.runtime.starts.recovery import not_given_aside
from tidemill.runtime.starts.standing import stamp_of
from tidemill.runtime.topics import OutputWriter

if TYPE_CHECKING:
    from datetime import timedelta

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame

    from tidemill.connectors.sinks.contract import Destination
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.offsets import BatchOffsets
    from tidemill.reading.route import Route
    from tidemill.reading.slicing import Slicing
    from tidemill.runfolder.folder import RunFolder

_QUIET = 5_000_000
"""µs after which an archive says how far a log without new rows is followed."""


class Committer:
    """Called by Spark on the driver for every batch, in order; a restart repeats the last one."""

    def __init__(
        self,
        manifest: Manifest,
        folder: RunFolder,
        catalog: Catalog,
        targets: Mapping[str, Destination],
        slicings: dict[str, Slicing],
        *,
        stamps: Mapping[str, BatchStamp] | None = None,
        keep: timedelta = KEEP_SNAPSHOTS,
    ) -> None:
        """``targets`` are the outputs', by name; ``slicings`` tell the tasks of each slice.

        ``stamps`` are what the tables said of this run when the driver started, by table; ``keep``
        is how long the files of old snapshots stay.
        """
        self.manifest = manifest
        self.folder = folder
        self.catalog = catalog
        given = not manifest.code or any(fold.gives for fold in manifest.folds.values())
        self.writer = OutputWriter(folder.path, targets, manifest.shuffles, given=given)
        self.slicings = slicings
        self._stamps, self._keep = stamps or {}, keep
        self._written = {
            name: target.metadata for name, target in targets.items() if isinstance(target, Target)
        }
        self._positions: dict[tuple[str, str], int] = {}
        self._newest: dict[str, dict[str, int]] = {}  # ingest time by output and partition
        self._said: dict[str, int] = {}

    def commit(self, frame: DataFrame, batch: int) -> BatchRecord:
        """Run the batch and commit it everywhere. Every table is checked on its own."""
        began = time.monotonic()
        now = read_batch(self.folder.checkpoint, batch)
        before = read_batch(self.folder.checkpoint, batch - 1) if batch else None
        if now is None:
            raise RunError(f"batch {batch} is not in the offset log")
        require_same(self.folder, batch, now)
        files, out, suppressed = self._write(frame, batch)
        self.writer.note(batch)
        taken = slices_taken(self._routes, before, now)
        counts, aside, sides = self._side(taken)
        stamp = self._stamp(batch, before, now)
        self._sync(batch, taken)
        for name, sink in self.manifest.sinks.items():
            if sink.topic is not None:
                continue  # its messages are in the topic
            found = self._not_given(sink.table, now, files.get(name, []))
            followed = self._followed(name, before, now, sides.get(name, Counts()))
            if followed is not None and not found and self._is_quiet(name, followed):
                followed = None
            known = self._known(sink.table, self._written.get(name))
            commit_files(self.catalog, sink.table, stamp, found, followed, known=known)
        self._commit_aside(aside, before, stamp)
        for piece in taken:
            start, end = piece.start.frontier, piece.end.frontier
            remove_side_files(self.folder.side, piece.source, start, end)
        self._forget(batch)
        return BatchRecord(
            batch=batch,
            frontier=min(now.slowest().values()),
            watermark=now.watermark,
            on_time=counts.on_time,
            late=counts.late,
            dead=counts.dead,
            out=out,
            suppressed=suppressed + counts.suppressed,
            seconds=time.monotonic() - began,
            clock=counts.clock,
        )

    def _sync(self, batch: int, taken: Iterable[TakenSlice]) -> None:
        """What says where the batch begins and ends must not be lost once a table has the batch."""
        sync_files(
            [
                self.folder.checkpoint / "offsets" / str(batch),
                *(self._routes[each.source].ledger.path(each.start.frontier) for each in taken),
            ]
        )

    def _known(self, table: str, written: TableMetadata | None) -> Known:
        run, home = self.manifest.run, self.folder.path.parents[1]
        waste = Wastebook.of(home, table, run, self._keep)
        return Known(self._stamps.get(table), written, waste)

    @property
    def _routes(self) -> dict[str, Route]:
        return {name: slicing.route for name, slicing in self.slicings.items()}

    def _stamp(self, batch: int, before: BatchOffsets | None, now: BatchOffsets) -> BatchStamp:
        """Enough to know the batch again, and to go on after it from the archive.

        Spark has no watermark before all sources began. Nothing that they read can close below the
        one of the frontiers at which they begin.
        """
        begun = {name: slicing.frontiers[0] for name, slicing in self.slicings.items()}
        return replace(
            stamp_of(self.manifest.run, batch, before, now, begun),
            closed=tuple(
                max(entry.watermark if entry else 0, self.manifest.delays.watermark(begun))
                for entry in (before, now)
            ),
            recovers=self.manifest.recovers,
            code=self.manifest.code_digest,
        )

    def _followed(
        self, name: str, before: BatchOffsets | None, now: BatchOffsets, counts: Counts
    ) -> Followed | None:
        """How far an archive follows its log after this batch; None for other outputs."""
        end = now.ends.get(name)
        live = self.manifest.sources[name].live if name in self.manifest.sources else None
        if self.manifest.code or end is None or live is None or not end.is_live:
            return None
        log = home_of(live)
        newest = self._newest_of(name)
        for number, moment in counts.newest.items():
            newest[number] = max(moment, newest.get(number, moment))
        reached = {
            number: Reached(at, end.frontier, newest.get(str(number)), live.topic, live.location)
            for number, at in log.offsets(end.positions).items()
        }
        route = self.slicings[name].route
        start = route.placed(before.ends[name] if before else route.first())
        begin = log.offsets(start.positions)
        gaps = {int(number): found for number, found in counts.gaps.items()}
        return Followed(reached, begin, gaps)

    def _newest_of(self, name: str) -> dict[str, int]:
        """The newest ingest times of an archive, at first as its table tells them."""
        if name not in self._newest:
            metadata = self.catalog.load_table(self.manifest.sinks[name].table).metadata
            self._newest[name] = {
                str(number): found.ingest
                for number, found in read_reached(metadata).items()
                if found.ingest is not None
            }
        return self._newest[name]

    def _is_quiet(self, name: str, followed: Followed) -> bool:
        """A log without new rows is not worth a commit each time: its frontier is said at times."""
        frontier = min(found.frontier for found in followed.reached.values())
        stands = all(
            found.next == followed.begin.get(number) for number, found in followed.reached.items()
        )
        quiet = stands and frontier - self._said.get(name, 0) < _QUIET and not followed.gaps
        if not quiet:
            self._said[name] = frontier
        return quiet

    def _forget(self, batch: int) -> None:
        """Let go of what only a rewind further back than is kept could need."""
        if self.manifest.folds:
            StateFiles(self.folder.state).forget(batch + 1 - self.manifest.keep_batches)
        if not self.manifest.ends:
            forget_slices(self._routes, self.folder.checkpoint, batch)

    def _write(self, frame: DataFrame, batch: int) -> tuple[dict[str, list[DataFile]], int, int]:
        """Write the output on executors; gather the descriptions of the files."""
        rows = self.writer.write(frame, batch).collect()
        files: dict[str, list[DataFile]] = {}
        for row in rows:
            if row["file"] is not None:
                files.setdefault(row["output"], []).append(pickle.loads(bytes(row["file"])))
        for found in files.values():
            found.sort(key=lambda file: str(file.file_path))
        return files, sum(row["rows"] for row in rows), sum(row["suppressed"] for row in rows)

    def _side(
        self, taken: Iterable[TakenSlice]
    ) -> tuple[Counts, pa.Table | None, dict[str, Counts]]:
        """Counts, late and dead rows of the batch's slices, from exactly the expected files.

        The counts of all sources together, and of each.
        """
        total, tables, sides = Counts(), [], dict[str, Counts]()
        for piece in taken:
            names = self.slicings[piece.source].side_names(piece.start, piece.end)
            counts, rows = read_side_files(self.folder.side, names)
            self._require_order(piece.source, counts)
            total += replace(counts, positions={}, newest={}, gaps={})
            sides[piece.source] = sides.get(piece.source, Counts()) + counts
            tables.append(rows)
        return total, pa.concat_tables(tables) if tables else None, sides

    def _require_order(self, source: str, counts: Counts) -> None:
        """Under order: position, offsets must rise from slice to slice too."""
        for partition, (low, high) in counts.positions.items():
            last = self._positions.get((source, partition), -1)
            if low <= last:
                raise SourceError(
                    f"the ingest time goes backwards in partition {partition}: offset {low} "
                    f"comes in a later slice than offset {last}",
                    where=f"source {source}",
                    fix="order: position needs a log whose ingest time never falls within a "
                    "partition; repair the archive, or leave order: out",
                )
            self._positions[(source, partition)] = high

    def _not_given(self, table: str, now: BatchOffsets, files: list[DataFile]) -> list[DataFile]:
        """The files, unless a run whose checkpoint was lost has put their rows in already."""
        lost = self.manifest.discard.get(table)
        if not (lost and files) or not lost.includes(now):
            return files
        io = self.catalog.load_table(table).io
        for file in files:
            with contextlib.suppress(OSError):
                io.delete(file.file_path)
        return []

    def _commit_aside(
        self, aside: pa.Table | None, before: BatchOffsets | None, stamp: BatchStamp
    ) -> None:
        if aside is None or not len(aside):
            return
        dead = pa.array([is_dead(reason) for reason in aside.column("reason").to_pylist()])
        for name, rows in (
            (self.manifest.late_table, aside.filter(pc.invert(dead))),
            (self.manifest.dead_table, aside.filter(dead)),
        ):
            fresh = not_given_aside(self.manifest.discard.get(name), before, rows)
            if len(fresh):
                table = self.catalog.load_table(name)
                files = write_files(table.metadata, table.io, fresh.combine_chunks())
                known = self._known(name, table.metadata)
                commit_files(self.catalog, name, stamp, files, known=known)

"""Carry fold state: out of a run into a file, and out of a run or a file into a new run.

The file is one Arrow file. Each fold has a column of structs, one struct per row of its state; the
column ``operator`` says which of them a row fills. The schema's metadata is a `StatePoint` as JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from tidemill.connectors.archives.opening import archive_of
from tidemill.connectors.logs.contract import home_of, open_log
from tidemill.errors import RequestError, RunError
from tidemill.folds.rebucketing import split
from tidemill.folds.state import BEFORE, Label, StateFiles, checksum_of
from tidemill.iceberg.catalog import open_catalog
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.carrying import FoldPoint, StatePoint, point_of
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held
from tidemill.runfolder.offset_log import committed_batches, read_batch
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest

_ABOUT = b"tidemill.point"
_OPERATOR = "operator"
Rows: TypeAlias = Callable[[str], Iterator[pa.Table]]
"""The state of a fold, in any pieces."""


@dataclass(frozen=True)
class KeptState:
    """The fold state of a run after its last committed batch, or an earlier one that is kept."""

    folder: RunFolder
    manifest: Manifest

    def point(
        self, batch: int | None = None, *, folds: bool = True, tally: bool = False
    ) -> StatePoint:
        """Where the run stands, with the shapes of its folds; without ``folds`` only where.

        ``tally``: all state is read, to count its rows.
        """
        number = self._batch(batch)
        entry = read_batch(self.folder.checkpoint, number)
        if entry is None:
            raise self._none(f"batch {number} is not kept any more")
        found = point_of(self.manifest, number, entry)
        names = self.manifest.code.folds if folds else ()
        kept = {name: self._fold(name, number, tally) for name in names}
        return replace(found, folds=kept, tidemill=version("tidemill"))

    def rows(self, operator: str, batch: int) -> Iterator[pa.Table]:
        """The rows of a fold, bucket by bucket."""
        files = StateFiles(self.folder.state, self.manifest.run)
        for bucket in range(self.manifest.resources.buckets):
            yield files.read(operator, batch, bucket)[1]

    def _batch(self, wanted: int | None) -> int:
        known = committed_batches(self.folder.checkpoint)
        if wanted is not None and wanted not in known:
            raise self._none(f"batch {wanted} is not among the committed batches that are kept")
        if not known:
            raise self._none("no batch is committed yet")
        return known[-1] if wanted is None else wanted

    def _none(self, why: str) -> RunError:
        run = self.manifest.run
        return RunError(
            f"the run {run} has no state to carry: {why}",
            fix=f"'tidemill status {run}' says how far it is",
            run=run,
        )

    def _fold(self, name: str, batch: int, is_counted: bool) -> FoldPoint:
        shape = self.manifest.code.shapes.get(name)
        if shape is None:
            raise RunError(
                f"the state of {name} cannot be carried: the run was planned by an earlier "
                "Tidemill, which did not note its shape",
                where=f"run {self.manifest.run}",
                fix="begin a new run with --from TIME --emit-from TIME: it makes the state from "
                "history",
            )
        files = StateFiles(self.folder.state, self.manifest.run)
        label, _ = files.read(name, batch, 0)
        tally = _Tally()
        for table in self.rows(name, batch) if is_counted else ():
            tally.add(table)
        pin = self.manifest.code.folds[name]
        return FoldPoint(
            shape, label.watermark, pin.behind, tally.rows, tally.checksum, pin.sources
        )


@dataclass
class _Tally:
    """Counts rows and their bytes."""

    rows: int = 0
    checksum: int = 0

    def add(self, table: pa.Table) -> None:
        if len(table):
            self.rows += len(table)
            own = checksum_of(table).to_bytes(4, "little")
            self.checksum = zlib.crc32(own, self.checksum)


def export_state(
    folder: RunFolder, manifest: Manifest, file: Path, batch: int | None
) -> StatePoint:
    """Write the state of a run into one file, whole or not at all. The run may be running."""
    if file.exists():
        raise RequestError(
            "there is a file already", where=str(file), fix="name another, or move it away"
        )
    if not manifest.code.folds:
        raise RunError(
            f"the run {manifest.run} has no fold state: {manifest.pipeline!r} uses no folds",
            fix="what Spark's own operators keep is in the run's checkpoint, for Spark alone",
        )
    kept = KeptState(folder, manifest)
    point = kept.point(batch)
    try:
        point = kept.point(point.batch, tally=True)
        shapes = {name: next(kept.rows(name, point.batch)).schema for name in point.folds}
        structs = [pa.field(name, pa.struct(list(shape))) for name, shape in shapes.items()]
        schema = pa.schema([pa.field(_OPERATOR, pa.string()), *structs])
        schema = schema.with_metadata({_ABOUT: dump_json(point)})
        Location.of(file).write_arrow(schema, _batches(kept, point, schema))
    except RunError as error:
        if not is_held(folder.path):
            raise
        raise RunError(
            f"the state after batch {point.batch} was let go of while it was written: the run goes "
            "on meanwhile",
            where=f"run {manifest.run}",
            fix=f"'tidemill pause {manifest.run}', export, and 'tidemill resume {manifest.run}'",
        ) from error
    return point


def _batches(kept: KeptState, point: StatePoint, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for name in point.folds:
        for table in kept.rows(name, point.batch):
            for batch in table.combine_chunks().to_batches():
                columns = [pa.array([name] * len(batch), pa.string())]
                for field in list(schema)[1:]:
                    is_own = field.name == name
                    own = pa.StructArray.from_arrays(batch.columns, fields=list(field.type))
                    columns.append(own if is_own else pa.nulls(len(batch), field.type))
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class StateFile:
    """A file that :func:`export_state` wrote."""

    path: Path

    def point(self) -> StatePoint:
        """What the file says of its state; an error says what is wrong with it."""
        with self._opened() as file:
            try:
                return load_json(StatePoint, (file.schema.metadata or {})[_ABOUT].decode())
            except (KeyError, ValueError) as error:
                raise self._wrong(f"it does not say what it holds ({error})") from None

    def rows(self, operator: str) -> Iterator[pa.Table]:
        """The rows of a fold; at their end it is checked that all were there, unchanged."""
        expected, tally = self.point().folds[operator], _Tally()
        with self._opened() as file:
            for number in range(file.num_record_batches):
                try:
                    batch = file.get_batch(number)
                except (pa.ArrowInvalid, OSError) as error:
                    raise self._wrong(f"it is damaged ({error})") from None
                if len(batch) and batch.column(_OPERATOR)[0].as_py() == operator:
                    table = _unpacked(batch.column(operator))
                    tally.add(table)
                    yield table
        if (tally.rows, tally.checksum) != (expected.rows, expected.checksum):
            raise self._wrong(f"its rows of {operator} are not those that were written")

    def _opened(self) -> pa.ipc.RecordBatchFileReader:
        try:
            return pa.ipc.open_file(pa.memory_map(str(self.path)))
        except FileNotFoundError:
            raise self._wrong("there is no such file") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise self._wrong(f"it is no Arrow file ({error})") from None

    def _wrong(self, why: str) -> RequestError:
        return RequestError(
            f"the state cannot be read: {why}",
            where=str(self.path),
            fix="'tidemill state RUN --export FILE' writes such a file",
        )


def _unpacked(structs: pa.StructArray) -> pa.Table:
    return pa.Table.from_arrays(structs.flatten(), schema=pa.schema(list(structs.type)))


def secure_log(loaded: LoadedConfig, manifest: Manifest) -> None:
    """Every log must still hold the rows from where the state ends, or the run would have a gap.

    Of a table that is followed, the snapshot in which the state ends is tagged for the run.
    """
    catalog = open_catalog(loaded)
    for pin in manifest.sources.values():
        log = open_log(loaded, pin, catalog)
        log.look_now()
        if pin.phase is None:
            continue
        log.require_seam(pin.phase)
        if pin.archive is not None and home_of(log.live).reads_archive:
            archive = replace(pin.archive, snapshot=pin.phase.positions)
            archive_of(archive).hold(archive, catalog, manifest.run)


def write_carried(folder: RunFolder, manifest: Manifest, point: StatePoint, rows: Rows) -> None:
    """Put the state into the buckets of a run that was not written down yet."""
    files, buckets = StateFiles(folder.carried, manifest.run), manifest.resources.buckets
    for name, pin in manifest.code.folds.items():
        kept = point.folds[name]
        is_packed = pin.reads is not None
        pieces: list[list[pa.Table]] = [[] for _ in range(buckets)]
        for table in rows(name):
            parts = split(table, kept.shape.keys, buckets, is_packed=is_packed)
            for piece, part in zip(pieces, parts, strict=True):
                piece.append(part)
        for bucket, piece in enumerate(pieces):
            label = Label(
                operator=name,
                kind=kept.shape.kind,
                batch=BEFORE,
                bucket=bucket,
                buckets=buckets,
                watermark=kept.watermark,
                keys=kept.shape.keys,
                time=kept.shape.time,
            )
            files.write(label, pa.concat_tables(piece) if piece else pa.table({}))

"""Keep an archive fast and small: compact small files, expire snapshots that nobody needs.

Compaction and expiry may run at the same time as `archive run`, as other runs, and as each other.
Each commit is made against exactly the metadata that was loaded, with pyiceberg's own retry off;
after a conflict the table is loaded and checked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.archive.missing_offsets import MARKERS, carried
from tidemill.archive.progress import frontier_of, read_progress, to_summary
from tidemill.errors import PlanError, SinkError, TidemillError
from tidemill.iceberg.catalog import load_table
from tidemill.iceberg.data_files import data_files, read_entries, refuse_row_deletes
from tidemill.iceberg.transaction import SteadyTransaction, attempts, try_commit

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

    from tidemill.archive.rewriting import Bundle
    from tidemill.config.archive import TableArchive

_TRIES = 60
_BUNDLES_PER_COMMIT = 16
COMPACTED = "tidemill.compacted"
"""The key in the summary of a compaction's snapshot. It says that the snapshot adds no new rows."""


@dataclass
class Compacted:
    """What a compaction has done so far, or, for a dry run, what it would do."""

    table: str
    bundles: int  # groups of small files to become one file each
    done: int = 0
    left_out: int = 0  # bundles whose files somebody else replaced meanwhile
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int | None = 0  # None: a dry run does not know

    def count(self, group: Sequence[Bundle], made: Sequence[DataFile] | None) -> None:
        """Add these bundles; ``made`` is None if they are only planned."""
        self.rows += sum(bundle.rows for bundle in group)
        self.files_before += sum(len(bundle.files) for bundle in group)
        self.bytes_before += sum(bundle.bytes for bundle in group)
        if made is None:
            self.files_after, self.bytes_after = self.files_after + len(group), None
            return
        self.done += len(group)
        self.files_after += len(made)
        self.bytes_after = (self.bytes_after or 0) + sum(file.file_size_in_bytes for file in made)


def compact(
    catalog: Catalog,
    archive: TableArchive,
    *,
    margin: int,
    target: int,
    dry_run: bool = False,
    on_progress: Callable[[Compacted], None] = lambda progress: None,
) -> Compacted:
    """Rewrite small files of closed ingest hours as few sorted ones; the rows stay the same.

    An hour is closed when it ended at least ``margin`` µs before the archive's frontier. Each
    commit replaces a few bundles of files. A crash leaves at most the new files of one commit,
    which no snapshot refers to. Readers of pinned snapshots are not disturbed, because the replaced
    files stay until `expire` deletes them.
    """
    from tidemill.archive.rewriting import find_bundles

    table = load_table(catalog, archive.table, f"table {archive.table}")
    refuse_row_deletes(table)
    frontier = frontier_of(read_progress(table.metadata))
    if frontier is None:
        raise PlanError(
            "no snapshot says how far the archive follows its log, so no hour is known as closed",
            where=f"table {archive.table}",
            fix="compact an archive that 'tidemill archive run' writes",
        )
    bundles = find_bundles(table, archive, frontier - margin, target)
    done = Compacted(archive.table, len(bundles))
    if dry_run:
        done.count(bundles, None)
        return done
    for at in range(0, len(bundles), _BUNDLES_PER_COMMIT):
        _compact_group(catalog, archive, bundles[at : at + _BUNDLES_PER_COMMIT], done)
        on_progress(done)
    return done


def _compact_group(
    catalog: Catalog, archive: TableArchive, planned: Sequence[Bundle], done: Compacted
) -> None:
    """Rewrite some bundles in one commit; skip bundles whose files somebody else has replaced."""
    from tidemill.archive.rewriting import discard, rewrite

    table = load_table(catalog, archive.table, f"table {archive.table}")
    live = {file.file_path for file in data_files(table)}
    group = [each for each in planned if live.issuperset(file.file_path for file in each.files)]
    made: list[DataFile] = []
    try:
        for bundle in group:
            made += rewrite(table, archive, bundle)
    except BaseException:
        discard(table.io, made)
        raise
    replaced = [file for bundle in group for file in bundle.files]
    if group and _replace(catalog, archive.table, table.metadata.default_spec_id, replaced, made):
        done.count(group, made)
        done.left_out += len(planned) - len(group)
    else:
        done.left_out += len(planned)


def _replace(
    catalog: Catalog, name: str, spec: int, replaced: Sequence[DataFile], made: Sequence[DataFile]
) -> bool:
    """Replace files in one commit. Returns False if somebody else has replaced the old files.

    The new files are deleted only when no commit that names them can have landed or can still land.
    """
    from tidemill.archive.rewriting import discard

    doubtful = False
    for table in _tables(catalog, name):
        live = {file.file_path for file in data_files(table)}
        if not live.issuperset(file.file_path for file in replaced):
            return _is_ours(table, made)
        try:
            refuse_row_deletes(table)
            if table.metadata.default_spec_id != spec:  # the files were written for this layout
                raise SinkError(
                    "the table's partition layout changed meanwhile",
                    where=f"table {name}",
                    fix="run it again: files of the new layout are then compacted",
                )
            landed = try_commit(_stage_replacement(table, replaced, made))
        except (TidemillError, OSError):
            if not doubtful:
                discard(table.io, made)
            raise
        if landed:
            return True
        doubtful = doubtful or landed is None
    if not doubtful:
        discard(table.io, made)
    raise _others_keep_writing(name)


def _stage_replacement(
    table: Table, replaced: Sequence[DataFile], made: Sequence[DataFile]
) -> Transaction:
    """A transaction against the loaded metadata; it is not committed yet."""
    from pyiceberg.table.snapshots import Operation

    from tidemill.archive.rewriting import ReplaceFiles

    summary = {COMPACTED: "true", **to_summary(read_progress(table.metadata))}
    markers = carried(table.metadata)
    transaction = SteadyTransaction(table)
    if markers.get(MARKERS) != table.metadata.properties.get(MARKERS):
        transaction.set_properties(markers)
    with ReplaceFiles(
        Operation.OVERWRITE, transaction, table.io, snapshot_properties=summary
    ) as update:
        for file in replaced:
            update.delete_data_file(file)
        for file in made:
            update.append_data_file(file)
    return transaction


def _tables(catalog: Catalog, name: str) -> Iterator[Table]:
    """Load the table for each attempt of a commit, with a pause between two attempts."""
    for _ in attempts(_TRIES):
        yield load_table(catalog, name, f"table {name}")


def _others_keep_writing(name: str) -> SinkError:
    return SinkError(
        f"no commit went through in {_TRIES} tries: others keep writing",
        where=f"table {name}",
        fix="try again when they are done; nothing is half done",
    )


def _is_ours(table: Table, made: Sequence[DataFile]) -> bool:
    """Whether our own commit, whose answer was lost, replaced the files; if not, delete ours."""
    from tidemill.archive.rewriting import discard

    manifests = {
        manifest for each in table.metadata.snapshots for manifest in each.manifests(table.io)
    }
    known = {entry.data_file.file_path for entry in read_entries(table.io, manifests, removed=True)}
    waste = [file for file in made if file.file_path not in known]
    discard(table.io, waste)
    return not waste


@dataclass(frozen=True)
class Expired:
    """What an expiry has freed, or, for a dry run, what it would free."""

    table: str
    snapshots: int
    kept: int
    data_files: int = 0
    metadata_files: int = 0
    bytes: int = 0


def expire(
    catalog: Catalog, archive: TableArchive, *, before: int, keep: int, dry_run: bool = False
) -> Expired:
    """Expire snapshots replaced before a time (ms), then delete the files only they referred to.

    The current snapshot, the ``keep`` newest, and every snapshot that a tag or branch names (a
    run's pin is a tag) are never expired. One commit removes the snapshots, then the files are
    deleted. A crash in between leaves files that no snapshot refers to: it costs disk space, never
    rows.
    """
    from tidemill.archive.expiry import delete_files, doomed_snapshots, find_waste, stage_removal

    for table in _tables(catalog, archive.table):
        doomed = doomed_snapshots(table.metadata, before, keep)
        data, metadata = find_waste(table, doomed)
        kept = len(table.metadata.snapshots) - len(doomed)
        if doomed and not dry_run:
            if not try_commit(stage_removal(table, doomed)) and not _are_gone(table, doomed):
                continue
            data, metadata = delete_files(table.io, data), delete_files(table.io, metadata)
        freed = sum(data.values()) + sum(metadata.values())
        return Expired(archive.table, len(doomed), kept, len(data), len(metadata), freed)
    raise _others_keep_writing(archive.table)


def _are_gone(table: Table, doomed: Sequence[Snapshot]) -> bool:
    now = table.refresh().metadata
    return all(now.snapshot_by_id(each.snapshot_id) is None for each in doomed)

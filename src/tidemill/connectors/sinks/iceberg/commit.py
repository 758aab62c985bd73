"""Commit a batch to a table exactly once, whatever dies, whoever else writes.

The batch's stamp is a table property written in the same transaction as its files. The loop:
load the table, stop if the stamp says that it has this very batch already, commit against exactly
that metadata, begin again on conflict. An unknown result is resolved by looking, never by writing
again. pyiceberg's own retry is not used: it would rebuild and commit without our look.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.archive.missing_offsets import carried
from tidemill.archive.progress import (
    ArchiveProgress,
    is_same_log,
    name_of,
    read_progress,
    to_summary,
)
from tidemill.connectors.sinks.iceberg.layout import fit_layout
from tidemill.connectors.sinks.iceberg.snapshot_expiry import RUN_IN_SUMMARY, Wastebook, tidy
from tidemill.connectors.sinks.stamp import BatchStamp, holds, is_repeat, read_stamp
from tidemill.errors import SinkError
from tidemill.iceberg.outage import is_outage, one_line
from tidemill.runfolder.retrying import clear_retry, note_retry

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_LOG = logging.getLogger(__name__)
_FOR_OUR_COMMITS = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": str(256 * 1024),
}
"""Laid over the loaded metadata, not written to the table: manifests are merged as we go, so that a
commit reads and writes a short list however many came before."""
_TRIES = 60


@dataclass(frozen=True)
class Known:
    """The table as the driver knows it."""

    at_start: BatchStamp | None = None  # its stamp of this run when the driver started
    written: TableMetadata | None = None  # the metadata that the files were written with
    waste: Wastebook | None = None  # which old files are to be deleted, and when
    run: Path | None = None  # the run's folder, where a commit that is tried again is noted


@dataclass(frozen=True)
class LogProgress:
    """What a commit says of the log that the table follows."""

    reached: dict[int, ArchiveProgress]
    begin: dict[int, int]  # where this batch begins in the log, by partition
    gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # offsets without a row


def commit_files(
    catalog: Catalog,
    name: str,
    stamp: BatchStamp,
    files: Sequence[DataFile],
    followed: LogProgress | None = None,
    *,
    known: Known | None = None,
) -> bool:
    """Put the files into the table, once. Returns whether this call did it.

    The files are newly written: no other call has them. A batch without files commits nothing (a
    repeat of nothing is nothing), unless there is something to say of the log: a quiet log is
    followed too.
    """
    from tidemill.iceberg.transaction import attempts

    if not files and followed is None:
        return False
    known, why = known or Known(), "others keep writing"
    for _ in attempts(_TRIES):
        try:
            table = catalog.load_table(name)
        except Exception as error:
            if not is_outage(error):
                raise
            why = f"the catalog does not answer: {one_line(error)}"
            _note(known, name, why)
            continue
        found = read_stamp(table.metadata.properties, stamp.run)
        if is_repeat(found, stamp, known.at_start, f"table {name}"):
            return _done(known, _settle(table, stamp, files))
        table.metadata = fit_layout(table, files, known.written)
        if _try_commit(table, stamp, files, followed, known.waste):
            return _done(known, True)
        why = "others keep writing"
    raise SinkError(
        f"batch {stamp.batch} could not be committed in {_TRIES} tries: {why}",
        where=f"table {name}",
        fix="wait until the catalog answers and other writers are done, then 'tidemill resume'",
    )


def _note(known: Known, name: str, why: str) -> None:
    _LOG.warning("the commit to %s is tried again: %s", name, why)
    if known.run is not None:
        note_retry(known.run, f"table {name}", why)


def _done(known: Known, is_ours: bool) -> bool:
    """A commit has an end: nothing is tried again any more."""
    if known.run is not None:
        clear_retry(known.run)
    return is_ours


def _try_commit(
    table: Table,
    stamp: BatchStamp,
    files: Sequence[DataFile],
    followed: LogProgress | None,
    waste: Wastebook | None,
) -> bool:
    """Make one attempt against the loaded metadata; False if the table must be loaded again."""
    from tidemill.iceberg.transaction import SteadyTransaction, try_commit

    if followed is not None:
        _require_alone(table, followed)
    table.metadata.properties.update(_FOR_OUR_COMMITS)
    transaction = SteadyTransaction(table)
    summary = {RUN_IN_SUMMARY: stamp.run}
    properties = stamp.as_property(files)
    if followed is not None:
        summary |= to_summary(followed.reached)
        properties |= carried(table.metadata, followed.gaps) if followed.gaps else {}
    transaction.set_properties(properties)
    update = transaction.update_snapshot(snapshot_properties=summary)
    with update.merge_append() as append:
        for file in files:
            append.append_data_file(file)
    try:
        landed = try_commit(transaction)
    except OSError as error:
        raise SinkError(
            f"batch {stamp.batch} cannot be written: {error.strerror}",
            where=f"table {'.'.join(table.name())}",
            fix="free space or give write permission, then 'tidemill resume'",
        ) from None
    if not landed:
        return False
    try:
        tidy(table, stamp.run, transaction.dropped, waste)
    except OSError as error:  # the batch is in: what cannot be cleared away must not stop the run
        _LOG.warning("old metadata of %s is not cleared away: %s", ".".join(table.name()), error)
    return True


def _require_alone(table: Table, followed: LogProgress) -> None:
    """The batch must begin in every partition where the table ends.

    Two runs that follow one log into one table would write every record twice; a run that begins
    beyond the table's end would leave a hole that nobody fills. Two logs in one table would lose
    records: offsets of the one stand for those of the other.
    """
    known, where = read_progress(table.metadata), f"table {'.'.join(table.name())}"
    if not is_same_log(known, followed.reached):
        raise SinkError(
            f"the table follows another topic{_named(known)}, this run follows"
            f"{_named(followed.reached)}",
            where=where,
            fix="cancel this run, and give its stream an archive table of its own",
        )
    for number, found in known.items():
        begin = followed.begin.get(number, 0)
        if begin == found.next:
            continue
        ends = f"the table ends in partition {number} before offset {found.next}"
        if begin < found.next:
            raise SinkError(
                f"{ends}, this batch begins at {begin}: another run follows the same log",
                where=where,
                fix="let only one 'tidemill archive run' follow a stream; cancel this one",
            )
        raise SinkError(
            f"{ends}, this batch begins at {begin}: the records between would be missing",
            where=where,
            fix="cancel this run and start a new 'tidemill archive run': it goes on where the "
            "table ends",
        )


def _named(reached: dict[int, ArchiveProgress]) -> str:
    name = name_of(reached)
    return "" if name is None else f" {name!r}"


def _settle(table: Table, stamp: BatchStamp, files: Sequence[DataFile]) -> bool:
    """The batch is in the table: delete these files, unless it is they that came with it."""
    if holds(table.metadata.properties, stamp.run, files):
        return True
    for file in files:
        with contextlib.suppress(OSError):
            table.io.delete(file.file_path)
    return not files

"""Commit a batch to a table exactly once, whatever dies, whoever else writes.

The batch's number is a table property written in the same transaction as its files. The loop:
load the table, stop if the property is at the batch already, commit against exactly that
metadata, begin again on conflict. An unknown result is resolved by looking, never by writing
again. pyiceberg's own retry is off: it would rebuild and commit without our look.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.archive.markers import carried
from tidemill.archive.reached import Reached, is_same_log, name_of, read_reached, to_summary
from tidemill.errors import SinkError
from tidemill.sinks.tidy import expire_own

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_LOG = logging.getLogger(__name__)
_FOR_OUR_COMMITS = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": str(256 * 1024),
}
"""Laid over the loaded metadata, not written to the table: no retry but ours, and manifests merged
as we go, so that a commit reads and writes a short list however many came before."""
_TRIES = 60
_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that no number of tries mends; the metadata was not written, so nothing was committed."""
RUN_IN_SUMMARY = "tidemill.run"


@dataclass(frozen=True)
class BatchStamp:
    """What a commit says of its batch: enough to stop a repeat, and to recover without state."""

    run: str
    batch: int
    frontiers: dict[str, int]
    watermark: int
    before: dict[str, int] = field(default_factory=dict)  # the frontiers of the batch before
    positions: dict[str, dict[str, int]] = field(default_factory=dict)  # live: source, partition
    apart: tuple[str, ...] = ()  # sources that are used twice, and one use was ahead
    apart_before: tuple[str, ...] = ()  # the same of the batch before
    closed: tuple[int, ...] = ()  # ms: the watermarks of the batch before, and of this one
    recovers: str = ""  # the lost run that this one goes on for

    def as_property(self) -> dict[str, str]:
        """The table property of the commit."""
        value: dict[str, Any] = {
            "batch": self.batch,
            "frontiers": self.frontiers,
            "batchWatermarkMs": self.watermark,
            "before": self.before,
            "positions": self.positions,
        }
        told = {
            "apart": self.apart,
            "apart_before": self.apart_before,
            "closed": self.closed,
            "recovers": self.recovers,
        }
        value |= {name: found for name, found in told.items() if found}
        return {property_name(self.run): json.dumps(value, sort_keys=True)}


def property_name(run: str) -> str:
    """The table property that holds a run's last committed batch."""
    return f"tidemill.{run}"


def read_stamp(properties: Mapping[str, str], run: str) -> BatchStamp | None:
    """The run's last commit in the table, if there is one."""
    text = properties.get(property_name(run))
    if text is None:
        return None
    value = json.loads(text)
    return BatchStamp(
        run,
        int(value["batch"]),
        value["frontiers"],
        value["batchWatermarkMs"],
        before=value.get("before", {}),
        positions=value.get("positions", {}),
        apart=tuple(value.get("apart", ())),
        apart_before=tuple(value.get("apart_before", ())),
        closed=tuple(value.get("closed", ())),
        recovers=value.get("recovers", ""),
    )


def committed_batch(properties: dict[str, str], run: str) -> int:
    """The last batch of the run in the table, or −1."""
    found = properties.get(property_name(run))
    return int(json.loads(found)["batch"]) if found else -1


@dataclass(frozen=True)
class Followed:
    """What a commit says of the log that the table follows."""

    reached: dict[int, Reached]
    begin: dict[int, int]  # where this batch begins in the log, by partition
    gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # offsets without a row


def commit_files(
    catalog: Catalog,
    name: str,
    stamp: BatchStamp,
    files: Sequence[DataFile],
    followed: Followed | None = None,
) -> bool:
    """Put the files into the table, once. Returns whether this call did it.

    A batch without files commits nothing (a repeat of nothing is nothing), unless there is
    something to say of the log: a quiet log is followed too.
    """
    if not files and followed is None:
        return False
    for attempt in range(_TRIES):
        table = catalog.load_table(name)
        if committed_batch(table.metadata.properties, stamp.run) >= stamp.batch:
            return _settle(table, files)
        if _try_commit(table, stamp, files, followed):
            expire_own(catalog, table, name, stamp.run)
            return True
        time.sleep(min(2.0, 0.02 * 2**attempt) * random.random())
    raise SinkError(
        f"batch {stamp.batch} could not be committed in {_TRIES} tries: others keep writing",
        where=f"table {name}",
        fix="wait until the other writers are done, then 'tidemill resume'",
    )


def _try_commit(
    table: Table, stamp: BatchStamp, files: Sequence[DataFile], followed: Followed | None
) -> bool:
    """One attempt against the loaded metadata. False: look again."""
    from pyiceberg.exceptions import CommitFailedException

    from tidemill.sinks.transaction import SteadyTransaction

    if followed is not None:
        _require_alone(table, followed)
    table.metadata.properties.update(_FOR_OUR_COMMITS)
    transaction = SteadyTransaction(table)
    summary = {RUN_IN_SUMMARY: stamp.run}
    properties = stamp.as_property()
    if followed is not None:
        summary |= to_summary(followed.reached)
        properties |= carried(table.metadata, followed.gaps) if followed.gaps else {}
    transaction.set_properties(properties)
    update = transaction.update_snapshot(snapshot_properties=summary)
    with update.merge_append() as append:
        for file in files:
            append.append_data_file(file)
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        _LOG.info("commit of batch %s met another writer: %s", stamp.batch, error)
        return False
    except _unknown_results() as error:
        if isinstance(error, OSError) and error.errno in _NO_PLACE:
            raise SinkError(
                f"batch {stamp.batch} cannot be written: {error.strerror}",
                where=f"table {'.'.join(table.name())}",
                fix="free space or give write permission, then 'tidemill resume'",
            ) from None
        _LOG.warning("commit of batch %s has an unknown result, looking: %s", stamp.batch, error)
        return False
    return True


def _require_alone(table: Table, followed: Followed) -> None:
    """Two runs that follow one log into one table would write every record twice.

    Two logs in one table would lose records: offsets of the one stand for those of the other.
    """
    known = read_reached(table.metadata)
    if not is_same_log(known, followed.reached):
        raise SinkError(
            f"the table follows another topic{_named(known)}, this run follows"
            f"{_named(followed.reached)}",
            where=f"table {'.'.join(table.name())}",
            fix="cancel this run, and give its stream an archive table of its own",
        )
    for number, found in known.items():
        if found.next > followed.begin.get(number, 0):
            raise SinkError(
                f"the table has partition {number} up to offset {found.next} already, this batch "
                f"begins at {followed.begin.get(number, 0)}: another run follows the same log",
                where=f"table {'.'.join(table.name())}",
                fix="let only one 'tidemill archive run' follow a stream; cancel this one",
            )


def _named(reached: dict[int, Reached]) -> str:
    name = name_of(reached)
    return "" if name is None else f" {name!r}"


def _unknown_results() -> tuple[type[Exception], ...]:
    """Errors after which a commit may or may not have landed; SQL is the default catalog."""
    from pyiceberg.exceptions import CommitStateUnknownException
    from sqlalchemy.exc import DBAPIError

    return CommitStateUnknownException, DBAPIError, OSError


def _settle(table: Table, files: Sequence[DataFile]) -> bool:
    """The batch is in the table. Did these files come with it? If not, they are waste."""
    referenced = set(table.inspect.all_files().column("file_path").to_pylist())
    waste = [file for file in files if file.file_path not in referenced]
    for file in waste:
        with contextlib.suppress(OSError):
            table.io.delete(file.file_path)
    return not waste

"""Commit a change of a table against exactly the metadata that was loaded, and know the result.

pyiceberg's own commit is not used, for two reasons. It retries without our check. And it takes a
conflict as proof that nothing was committed, and deletes the files it wrote. But a proxy or a
client library may have repeated a request that had succeeded while its answer was lost; the repeat
is then answered as a conflict. So after a conflict the table is loaded first, and only files that
no snapshot names are deleted.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import random
import time
from collections.abc import Iterator

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

_LOG = logging.getLogger(__name__)
_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that no retry can help; the metadata was not written, so nothing was committed."""
_LONGEST_PAUSE = 2.0


class SteadyTransaction(Transaction):
    """One attempt to commit against the metadata that was loaded.

    The metadata with the staged changes is computed once per change. pyiceberg computes it a dozen
    times for one snapshot, which takes half the time of a small commit.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.dropped: list[str] = []
        self._known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with all staged changes."""
        if self._known is None or self._known[0] is not self._updates:
            self._known = (self._updates, super().table_metadata)
        return self._known[1]

    def _stage(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...] = (),
    ) -> Transaction:
        """Stage updates; a new snapshot never gets an older timestamp than the table.

        If this machine's clock was set back, catalogs would refuse a commit whose timestamp is a
        minute older than the end of the snapshot log.
        """
        base = self._table.metadata
        newest = max(
            [base.last_updated_ms, *(each.timestamp_ms for each in base.snapshot_log[-1:])]
        )
        return super()._stage(
            tuple(_not_before(update, newest) for update in updates), requirements
        )

    def commit_transaction(self) -> Table:
        """Commit, without a retry. A conflict is raised only if the table lacks the change.

        pyiceberg would delete old metadata files now; we do not, because readers may still use
        them. Files that the new metadata no longer names are in ``dropped``.
        """
        if not self._updates:
            return self._table
        table, uuid = self._table, AssertTableUUID(uuid=self.table_metadata.table_uuid)
        before = table.metadata
        try:
            now = table.catalog.commit_table(table, (*self._requirements, uuid), self._updates)
            table.metadata, table.metadata_location = now.metadata, now.metadata_location
        except CommitFailedException:
            if not self._has_landed():
                raise
        kept = {each.metadata_file for each in table.metadata.metadata_log}
        old = [each.metadata_file for each in before.metadata_log]
        self.dropped = [path for path in old if path not in kept]
        self.dropped += self._merged_at_once()
        self._updates, self._requirements, self._snapshot_producers = (), (), []
        return self._table

    def _merged_at_once(self) -> Iterator[str]:
        """Manifests that this commit wrote and merged into others at once."""
        for producer in self._snapshot_producers:
            snapshot = self._table.metadata.snapshot_by_id(producer.snapshot_id)
            if snapshot is not None and len(producer._written_manifests) > 1:
                named = {each.manifest_path for each in snapshot.manifests(self._table.io)}
                yield from (path for path in producer._written_manifests if path not in named)

    def _has_landed(self) -> bool:
        """Load the table after a conflict; if it does not have our snapshots, delete our files.

        No request of ours can succeed later, because its requirements no longer hold.
        """
        now = self._table.catalog.load_table(self._table.name())
        made = [producer.snapshot_id for producer in self._snapshot_producers]
        if made and all(now.metadata.snapshot_by_id(number) is not None for number in made):
            _LOG.warning("a commit was answered as a conflict, but the table has it")
            self._table.metadata = now.metadata
            self._table.metadata_location = now.metadata_location
            return True
        with contextlib.suppress(OSError):
            self._remove_files(now)
        return False

    def _remove_files(self, now: Table) -> None:
        """Delete our files, except those that a snapshot names: another may use our manifests."""
        written = {
            path
            for producer in self._snapshot_producers
            for path in (*producer._written_manifests, *producer._written_manifest_lists)
        }
        if not written:
            return
        for snapshot in now.metadata.snapshots:
            written.discard(snapshot.manifest_list)
            written -= {each.manifest_path for each in snapshot.manifests(now.io)}
        for path in written:
            with contextlib.suppress(OSError):
                now.io.delete(path)


def _not_before(update: TableUpdate, newest: int) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms >= newest:
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": newest}))


def try_commit(transaction: Transaction) -> bool | None:
    """Commit, and return whether it landed; None if the result is unknown and has to be looked up.

    An error means that the commit did not land and never will.
    """
    try:
        transaction.commit_transaction()
    except CommitFailedException as error:
        _LOG.info("the commit met another writer: %s", error)
        return False
    except _unknown_results() as error:
        if isinstance(error, OSError) and error.errno in _NO_PLACE:
            raise
        _LOG.warning("the commit has an unknown result, looking: %s", error)
        return None
    return True


def _unknown_results() -> tuple[type[Exception], ...]:
    """Errors after which a commit may or may not have landed; SQL is the default catalog."""
    from sqlalchemy.exc import DBAPIError

    return CommitStateUnknownException, DBAPIError, OSError


def attempts(most: int) -> Iterator[int]:
    """Count attempts from 0, with a growing random pause before each retry."""
    for attempt in range(most):
        if attempt:
            time.sleep(min(_LONGEST_PAUSE, 0.02 * 2**attempt) * random.random())
        yield attempt

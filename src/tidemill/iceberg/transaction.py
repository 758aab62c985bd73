"""Commit a change of a table against exactly the metadata that was loaded; know what came of it.

pyiceberg's own way is not used, for two reasons. It tries again without our check. And it takes a
conflict as a proof that nothing landed, and deletes what it wrote; but a conflict may be the answer
to a repeat below us (a proxy, a client library) of a request that landed while its answer was lost.
So after a conflict the table is looked at first, and only files that no snapshot names are deleted.
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
"""Errors that no number of tries mends; the metadata was not written, so nothing was committed."""
_LONGEST_PAUSE = 2.0


class SteadyTransaction(Transaction):
    """One attempt against the metadata that was loaded; its metadata is worked out once per change.

    A snapshot asks for the metadata a dozen times, and pyiceberg copies all of it each time: half
    of what a small commit takes.
    """

    def __init__(self, table: Table) -> None:
        """Nothing is staged yet."""
        super().__init__(table)
        self.dropped: list[str] = []
        self._known: tuple[tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """With all that is staged."""
        if self._known is None or self._known[0] is not self._updates:
            self._known = (self._updates, super().table_metadata)
        return self._known[1]

    def _stage(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...] = (),
    ) -> Transaction:
        """A new snapshot is never older than the table: a clock that was set back must not count.

        Iceberg's snapshot log goes forward; catalogs refuse a commit that is a minute behind it.
        """
        base = self._table.metadata
        newest = max(
            [base.last_updated_ms, *(each.timestamp_ms for each in base.snapshot_log[-1:])]
        )
        return super()._stage(
            tuple(_not_before(update, newest) for update in updates), requirements
        )

    def commit_transaction(self) -> Table:
        """Commit, once. A conflict is only raised if the table does not have the change.

        Old metadata files are not deleted with it, as pyiceberg would: readers may hold them. What
        the new metadata no longer names is in ``dropped``.
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
        """Manifests that were written and merged into others in this very commit."""
        for producer in self._snapshot_producers:
            snapshot = self._table.metadata.snapshot_by_id(producer.snapshot_id)
            if snapshot is not None and len(producer._written_manifests) > 1:
                named = {each.manifest_path for each in snapshot.manifests(self._table.io)}
                yield from (path for path in producer._written_manifests if path not in named)

    def _has_landed(self) -> bool:
        """Look at the table after a conflict; if it does not have our snapshots, remove our files.

        No request of ours can land later: what it requires of the table is no longer so.
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
        """Our manifests may be in use although our snapshot is gone: another may name them."""
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
    """Whether it landed; None: nobody knows, look. An error: it did not, and will not."""
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
    """The numbers of tries, with a growing random pause between two: others get their turn."""
    for attempt in range(most):
        if attempt:
            time.sleep(min(_LONGEST_PAUSE, 0.02 * 2**attempt) * random.random())
        yield attempt

"""Publish a shadow into its table, and put the range back: one commit each, exactly once.

The loop is that of every commit of ours: load the table, look whether the change is in, check that
the range is what somebody has seen, commit against exactly that metadata, begin again on conflict.
The change, its snapshot and the tags that a revert needs are set in the same commit.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.archive.progress import read_progress
from tidemill.connectors.sinks.iceberg.changes import (
    read_changes,
    replaced_by,
    standing_changes,
    tag_before,
    tag_compared,
    tag_published,
    tags_of,
    with_change,
)
from tidemill.connectors.sinks.iceberg.columns import ColumnChanges, add_columns
from tidemill.connectors.sinks.iceberg.dropping import drop_lent_table, find_borrowers
from tidemill.connectors.sinks.iceberg.range_files import Key, Stretch, find_files
from tidemill.connectors.sinks.iceberg.range_rows import Rewriter, digest
from tidemill.connectors.sinks.iceberg.range_swap import (
    Source,
    Swap,
    find_swap,
    require_there,
    stage_swap,
    stage_tags,
    write_swap,
)
from tidemill.connectors.sinks.iceberg.snapshot_expiry import Wastebook
from tidemill.connectors.sinks.iceberg.table import last_commits
from tidemill.connectors.sinks.replacing import (
    Action,
    Change,
    Outlook,
    Production,
    Replacement,
)
from tidemill.errors import SinkError, TidemillError
from tidemill.iceberg.catalog import find_table, set_tag, unset_tags
from tidemill.iceberg.transaction import SteadyTransaction, attempts, try_commit

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

    from tidemill.connectors.sinks.contract import LastCommit

_TRIES = 60
_SETTLING = 5


@dataclass
class _Sight:
    """The range as it was seen by those who decided, to compare it with the range as it is.

    ``snapshots``: each of these states is accepted. Once one of them is found again, its files are
    kept in memory, because the snapshot itself may be expired while the commit begins again.
    """

    stretch: Stretch
    snapshots: tuple[int | None, ...]
    run: str
    files: dict[Key, FileScanTask] | None = None

    def require(self, table: Table, what: str) -> None:
        """Refuse a range with other rows; the same rows in other files, compacted, are fine."""
        now = find_files(table, table.metadata.current_snapshot_id, self.stretch)
        same = None if self.files is None else self._is_as_before(table, self.files, now)
        if same is None:
            there = [each for each in self.snapshots if _is_there(table, each)]
            if not there:
                raise SinkError(
                    f"the state of the table that was {what} is gone: snapshot {self.snapshots[0]}",
                    where=f"table {'.'.join(table.name())}",
                    fix=f"{_again(what, self.run)}--changed goes on without looking",
                )
            same = any(
                self._is_same(table, find_files(table, each, self.stretch), now) for each in there
            )
        if not same:
            raise SinkError(
                f"rows of the range have changed since it was {what}",
                where=f"table {'.'.join(table.name())}",
                fix=f"'tidemill compare {self.run}' shows what there is now; --changed replaces "
                "the range all the same. Nothing was changed",
            )
        self.files = now

    def _is_as_before(
        self, table: Table, old: dict[Key, FileScanTask], now: dict[Key, FileScanTask]
    ) -> bool | None:
        """As it was at the last look; None: its files were compacted and expired meanwhile."""
        try:
            return self._is_same(table, old, now)
        except FileNotFoundError:
            return None

    def _is_same(
        self, table: Table, old: dict[Key, FileScanTask], now: dict[Key, FileScanTask]
    ) -> bool:
        gone = [task for key, task in old.items() if key not in now]
        came = [task for key, task in now.items() if key not in old]
        if not gone and not came:
            return True
        return digest(table, gone, self.stretch) == digest(table, came, self.stretch)


def _is_there(table: Table, snapshot: int | None) -> bool:
    return snapshot is None or table.metadata.snapshot_by_id(snapshot) is not None


@dataclass(frozen=True)
class IcebergProduction(Production):
    """The table that a run's shadow stands beside."""

    catalog: Catalog
    place: str
    shadow: str
    time: str | None
    waste: Callable[[str], Wastebook] | None = None  # of a run: old metadata, to be deleted later
    tries: int = field(default=_TRIES, repr=False)

    def writers(self) -> Mapping[str, LastCommit]:
        """By the stamps of their commits."""
        return last_commits(self._load())

    def changes(self) -> list[Change]:
        """They are properties of the table."""
        return read_changes(self._load().metadata.properties)

    def done(self, run: str, action: Action) -> Change | None:
        """By the table's properties and its history."""
        return _done(self._load(), run, action)

    def shadow_rows(self) -> int | None:
        """As the newest snapshot counts them; rows that equality deletes take are not counted."""
        table = find_table(self.catalog, self.shadow)
        snapshot = None if table is None else table.metadata.current_snapshot()
        if table is None or snapshot is None or snapshot.summary is None:
            return None if table is None or snapshot is not None else 0
        told = snapshot.summary.additional_properties
        if int(told.get("total-equality-deletes", 0)):
            return None
        return int(told.get("total-records", 0)) - int(told.get("total-position-deletes", 0))

    def look(self, asked: Replacement, action: Action) -> Outlook:
        """Plan the swap against the table as it is now."""
        table = self._load()
        done = _done(table, asked.run, action)
        if done is not None:
            over = replaced_by(table.metadata, done) if action is Action.PUBLISH else None
            return Outlook(self.place, done, replaced_by=over)
        stretch, columns = self._stretch(asked, action), ColumnChanges((), (), ())
        if action is Action.PUBLISH:
            columns = self._columns(table)
            columns.require(self.place, accepted=asked.other_schema)
        source, sight = self._begin(table, asked, action, stretch)
        if sight is not None:
            sight.require(table, _SEEN[action])
        swap = find_swap(table, source, stretch)
        require_there(source, swap)
        states = table.metadata.current_snapshot_id, source.snapshot
        return Outlook(self.place, None, swap.counts, columns.words, states)

    def publish(self, asked: Replacement) -> Change:
        """Files of the shadow come in by reference where the table reads them alike."""
        table = self._load()
        columns = self._columns(table)
        done = _done(table, asked.run, Action.PUBLISH)
        if done is None:
            columns.require(self.place, accepted=asked.other_schema)
            if columns.added:
                add_columns(table, self._shadow().schema(), columns.added)
        return self._replace(asked, Action.PUBLISH)

    def revert(self, asked: Replacement) -> Change:
        """The rows come from the tagged state before the publish."""
        return self._replace(asked, Action.REVERT)

    def hold(self, snapshot: int | None, run: str) -> None:
        """A tag, which every expiry heeds."""
        if snapshot is not None:
            set_tag(self._load(), snapshot, tag_compared(run))

    def drop_shadow(self, run: str, *, others: Iterable[str] = ()) -> int:
        """Untag the run's states, then delete the shadow less the files that tables refer to."""
        borrowers = list(find_borrowers(self.catalog, self.place, run, others))
        for table in borrowers:
            unset_tags(table, tags_of(run))
        return drop_lent_table(self.catalog, self.shadow, borrowers)

    def _replace(self, asked: Replacement, action: Action) -> Change:
        """See the module; what was written and is not needed is deleted."""
        stretch = self._stretch(asked, action)
        attempt = _Attempt(secrets.token_hex(8), Rewriter(stretch, asked.journal))
        try:
            for _ in attempts(self.tries):
                table = self._load()
                attempt.io = table.io
                done = _done(table, asked.run, action)
                if done is not None:
                    return self._finish(table, done, attempt)
                if attempt.source is None:
                    attempt.source, attempt.sight = self._begin(table, asked, action, stretch)
                try:
                    landed = self._try(table, asked, action, attempt)
                except FileNotFoundError as error:
                    self._require_newer(table, error)  # compacted and expired while it was read
                    continue
                if landed:
                    change = _done(table, asked.run, action)
                    assert change is not None
                    return self._finish(table, change, attempt)
        except BaseException:
            if attempt.io is not None and not attempt.is_doubtful:
                attempt.rewriter.discard(attempt.io)
            raise
        if attempt.io is not None and not attempt.is_doubtful:
            attempt.rewriter.discard(attempt.io)
        raise SinkError(
            f"the {action} did not go through in {self.tries} tries: others keep writing",
            where=f"table {self.place}",
            fix="try again when they are done; nothing was changed",
        )

    def _try(
        self, table: Table, asked: Replacement, action: Action, attempt: _Attempt
    ) -> bool | None:
        """One attempt against the loaded metadata."""
        assert attempt.source is not None
        if attempt.sight is not None:
            attempt.sight.require(table, _SEEN[action])
        swap = find_swap(table, attempt.source, attempt.rewriter.stretch)
        require_there(attempt.source, swap)
        attempt.files = write_swap(table, attempt.source, swap, attempt.rewriter)
        transaction = self._stage(table, asked, action, attempt, swap)
        doubt, attempt.is_doubtful = attempt.is_doubtful, True  # until the result is known
        landed = try_commit(transaction)
        if landed is False:
            attempt.is_doubtful = doubt
        if landed and self.waste is not None:
            with contextlib.suppress(OSError):  # the change is in: the rest is only disk space
                self.waste(asked.run).add(transaction.dropped, time.time_ns() // 1_000_000)
        return landed

    def _require_newer(self, table: Table, error: FileNotFoundError) -> None:
        """Refuse a table that still names a file that is gone; another may be tried again."""
        if self._load().metadata_location == table.metadata_location:
            raise SinkError(
                f"a file of the table is gone: {error}",
                where=f"table {self.place}",
                fix="restore it from a copy; nothing was changed",
            ) from None

    def _stage(
        self, table: Table, asked: Replacement, action: Action, attempt: _Attempt, swap: Swap
    ) -> SteadyTransaction:
        """Rows, stamp and tags in one transaction."""
        source, stretch = attempt.source, attempt.rewriter.stretch
        assert source is not None
        known = read_changes(table.metadata.properties, asked.run)
        before = table.metadata.current_snapshot_id
        summary = {
            "tidemill.review.action": str(action),
            "tidemill.review.run": asked.run,
            "tidemill.review.by": asked.by,
        }
        transaction, after = stage_swap(table, swap, attempt.files, summary)
        change = Change(
            action=action,
            run=asked.run,
            output=asked.output,
            number=known[-1].number + 1 if known else 1,
            token=attempt.token,
            time=stretch.column,
            span=stretch.span,
            at=time.time_ns() // 1_000,
            by=asked.by,
            before=before,
            after=after,
            source=source.name,
            source_snapshot=source.snapshot,
            counts=swap.counts,
        )
        if action is Action.PUBLISH:
            tags = {tag_before(asked.run): before, tag_published(asked.run): after}
            if after == before and tag_before(asked.run) in table.metadata.refs:
                del tags[tag_before(asked.run)]  # the rows are in already, from an earlier publish
            stage_tags(transaction, tags)
        transaction.set_properties(with_change(table.metadata, change))
        return transaction

    def _finish(self, table: Table, change: Change, attempt: _Attempt) -> Change:
        """Delete what was written in vain, also by calls that were killed."""
        is_ours = change.token == attempt.token
        attempt.rewriter.discard(table.io, attempt.files if is_ours else ())
        with contextlib.suppress(TidemillError, OSError):  # the change is in, the rest can wait
            for _ in attempts(_SETTLING):
                try:
                    attempt.rewriter.settle(table)
                    break
                except FileNotFoundError:  # a snapshot was expired while it was read
                    table = self._load()
        return change

    def _begin(
        self, table: Table, asked: Replacement, action: Action, stretch: Stretch
    ) -> tuple[Source, _Sight | None]:
        """Where the new rows come from, and which states of the range are accepted."""
        last = _last(table, asked.run)
        if action is Action.REVERT:
            assert last is not None
            source = Source(table, _tagged(table, tag_before(asked.run), last.before))
            _require_same_column(table, source.snapshot, stretch.column)
            tag = table.metadata.refs.get(tag_published(asked.run))
            seen: tuple[int | None, ...] = (last.after if tag is None else tag.snapshot_id,)
            return source, None if asked.changed else _Sight(stretch, seen, asked.run)
        shadow = self._shadow()
        source = Source(shadow, shadow.metadata.current_snapshot_id)
        if asked.changed:
            return source, None
        if asked.was_seen and asked.seen_shadow != source.snapshot:
            raise SinkError(
                "the shadow has changed since it was compared",
                where=f"table {self.shadow}",
                fix=f"{_again('compared', asked.run)}--changed publishes it as it is",
            )
        seen = (asked.seen if asked.was_seen else table.metadata.current_snapshot_id,)
        if tag_before(asked.run) in table.metadata.refs:
            seen = (*seen, table.metadata.refs[tag_before(asked.run)].snapshot_id)
        return source, _Sight(stretch, seen, asked.run)

    def _load(self) -> Table:
        table = find_table(self.catalog, self.place)
        if table is None:
            raise SinkError(
                f"the table {self.place!r} is not there",
                where=f"table {self.place}",
                fix="restore it, or make it first: a live run of the pipeline does, and a backfill "
                f"with --into {self.place}; nothing was changed",
            )
        if read_progress(table.metadata):
            raise SinkError(
                "the table is the archive of a topic: its rows are the log's, and stay",
                where=f"table {self.place}",
            )
        return table

    def _shadow(self) -> Table:
        run = self.shadow.removeprefix(f"{self.place}__")
        table = find_table(self.catalog, self.shadow)
        if table is None:
            raise SinkError(
                f"the shadow {self.shadow!r} is gone",
                where=f"table {self.shadow}",
                fix=f"run the backfill again, and 'tidemill forget {run}' first, if it has a name "
                "or fills a gap; nothing was changed",
            )
        return table

    def _columns(self, table: Table) -> ColumnChanges:
        return ColumnChanges.between(self._shadow().schema(), table.schema())

    def _stretch(self, asked: Replacement, action: Action) -> Stretch:
        """The range, of a time column that both sides have; of a revert, as it was published."""
        table, column, span = self._load(), self.time, asked.span
        if action is Action.REVERT:
            last = _last(table, asked.run)
            if last is None:
                is_known = bool(read_changes(table.metadata.properties, asked.run))
                raise SinkError(
                    f"the publish of the run {asked.run} was rolled back: the table has its state "
                    "of before"
                    if is_known
                    else f"the run {asked.run} was never published",
                    where=f"table {self.place}",
                    fix=f"'tidemill history {self.place}' lists what was",
                )
            column, span = last.time, last.span
        if column is None:
            raise SinkError(
                f"the output {asked.output!r} has no time: which rows of the table are those of "
                "the run's range is not known",
                where=f"table {self.place}",
                fix="name the output's time column in the YAML (time: under the sink), and run the "
                "backfill again; nothing was changed",
            )
        _require_times(table, column)
        return Stretch(column, span)


_SEEN = {Action.PUBLISH: "compared", Action.REVERT: "published"}


def _again(what: str, run: str) -> str:
    return f"'tidemill compare {run}' looks again; " if what == "compared" else ""


@dataclass
class _Attempt:
    """What the attempts of one call share."""

    token: str
    rewriter: Rewriter
    source: Source | None = None
    sight: _Sight | None = None
    files: list[DataFile] = field(default_factory=list)
    io: FileIO | None = None
    is_doubtful: bool = False  # a commit may have landed that nobody has seen


def _last(table: Table, run: str) -> Change | None:
    """The run's last change that the table still has; one that was rolled back is not there."""
    found = standing_changes(table.metadata, run)
    return found[-1] if found else None


def _done(table: Table, run: str, action: Action) -> Change | None:
    """The run's last change at the table, if it is the one that is asked for and still holds."""
    last = _last(table, run)
    return last if last is not None and last.action is action else None


def _tagged(table: Table, tag: str, known: int | None) -> int | None:
    """The snapshot of a tag; without a tag the table was empty then, or the tag was removed."""
    ref = table.metadata.refs.get(tag)
    if ref is not None:
        return ref.snapshot_id
    if known is None or table.metadata.snapshot_by_id(known) is not None:
        return known
    raise SinkError(
        f"the snapshot {known} is gone, and with it what the range was before",
        where=f"table {'.'.join(table.name())}",
        fix="its tag was removed, by 'tidemill shadows drop' or by hand; a backfill can make the "
        "rows again",
    )


def _require_times(table: Table, column: str) -> None:
    from pyiceberg.types import TimestampType, TimestamptzType

    found: Any = {each.name: each.field_type for each in table.schema().fields}.get(column)
    if not isinstance(found, TimestampType | TimestamptzType):
        what = "has no column" if found is None else f"has no timestamps ({found}) in the column"
        raise SinkError(
            f"the table {what} {column!r}, which the range is about",
            where=f"table {'.'.join(table.name())}",
            fix="add the column to the table, or name another time: under the sink; nothing was "
            "changed",
        )


def _require_same_column(table: Table, snapshot: int | None, column: str) -> None:
    """Refuse a time column that took the name of another one: all old rows are null in it."""
    found = None if snapshot is None else table.metadata.snapshot_by_id(snapshot)
    old = {each.schema_id: each for each in table.metadata.schemas}.get(
        -1 if found is None or found.schema_id is None else found.schema_id
    )
    if old is None or column not in old.column_names:
        return
    if old.find_field(column).field_id != table.schema().find_field(column).field_id:
        raise SinkError(
            f"the column {column!r} is another one than that of the publish: which rows are those "
            "of the range is not known any more",
            where=f"table {'.'.join(table.name())}",
            fix=f"rename the columns back, so that {column!r} has the old times; nothing was "
            "changed",
        )

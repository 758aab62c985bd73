"""The commits of `archive run`: each snapshot also says how far the table follows its log."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tidemill.archive.progress import ArchiveProgress, read_progress
from tidemill.connectors.logs.contract import home_of
from tidemill.connectors.sinks.iceberg.commit import LogProgress
from tidemill.connectors.sinks.iceberg.table import IcebergTable, files_of
from tidemill.planning.manifest import SourcePin
from tidemill.reading.route import Route
from tidemill.reading.sidefile import Counts
from tidemill.runtime.driving.committer import Batch, Committer

_QUIET = 5_000_000
"""µs after which an archive says how far a log without new rows is followed."""


class ArchiveCommitter(Committer):
    """The committer of a run that follows logs into their archives: tables, output by source."""

    def __init__(self, *given: Any) -> None:
        """As every committer; its sinks are tables, because an archive that is followed is one."""
        super().__init__(*given)
        self._logs = {
            name: FollowedLog(self.manifest.sources[name], self.slicings[name].route, sink)
            for name, sink in self.sinks.items()
            if isinstance(sink, IcebergTable)
        }

    def _commit_outputs(self, batch: Batch, written: Mapping[str, list[bytes]]) -> None:
        """Commit at times without rows, too: a quiet log is followed as well."""
        for name, log in self._logs.items():
            files = files_of(written.get(name, []))
            followed = log.follow(name, batch)
            if followed is not None and not files and log.is_quiet(followed):
                followed = None
            log.table.commit_files(batch.stamp, files, followed)


class FollowedLog:
    """How far one archive follows its log, from batch to batch."""

    def __init__(self, pin: SourcePin, route: Route, table: IcebergTable) -> None:
        self.pin, self.route, self.table = pin, route, table
        self._said = 0  # the frontier of the last commit

    def follow(self, name: str, batch: Batch) -> LogProgress | None:
        """What the commit of a batch says of the log; None if its source has no positions yet."""
        end, counts = batch.now.ends.get(name), batch.sides.get(name, Counts())
        live = self.pin.live
        if end is None or live is None or not end.is_live:
            return None
        newest = self._newest
        for number, moment in counts.newest.items():
            newest[number] = max(moment, newest.get(number, moment))
        log = home_of(live)
        reached = {
            number: ArchiveProgress(
                at, end.frontier, newest.get(str(number)), live.topic, live.location
            )
            for number, at in log.offsets(end.positions).items()
        }
        first = batch.before.ends[name] if batch.before else self.route.first()
        begin = log.offsets(self.route.placed(first).positions)
        gaps = {int(number): found for number, found in counts.gaps.items()}
        return LogProgress(reached, begin, gaps)

    @cached_property
    def _newest(self) -> dict[str, int]:
        """The newest ingest time of each partition, at first as the archive's table tells it."""
        table = self.table.existing()
        known = {} if table is None else read_progress(table.metadata)
        return {
            str(number): found.ingest for number, found in known.items() if found.ingest is not None
        }

    def is_quiet(self, followed: LogProgress) -> bool:
        """A log without new rows is not worth a commit each time: its frontier is said at times."""
        frontier = min(found.frontier for found in followed.reached.values())
        stands = all(
            found.next == followed.begin.get(number) for number, found in followed.reached.items()
        )
        quiet = stands and frontier - self._said < _QUIET and not followed.gaps
        if not quiet:
            self._said = frontier
        return quiet

"""Which version of a reference table each batch sees. It is decided once, before the batch begins.

The rows of a version are an Arrow file in the run's folder, named by their digest. A decision is a
small file, named by the first batch that sees the version: batch N sees the version of the last
decision that is not after N. So a batch that runs again, in another process or after a rewind,
finds the very rows it had, whatever became of the table.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.manifest import TablePin
from tidemill.runfolder.folder import ARROW, VERSIONS
from tidemill.storage.disk import sync_files
from tidemill.storage.location import Location, Place

if TYPE_CHECKING:
    import pyarrow as pa

_DECISION = ".json"
_LETTERS = 24


@dataclass(frozen=True)
class Version(JsonValue):
    """One version of a table: where it was read from, when (µs), and the digest of its rows."""

    digest: str
    pin: TablePin
    read: int = 0


class DecidedVersions:
    """The versions of one reference table of one run. Written by the driver, read by all."""

    def __init__(self, run: Place, table: str) -> None:
        self.table = table
        self.folder = Location.of(run) / VERSIONS / table

    def keep(self, rows: pa.Table, pin: TablePin, read: int) -> Version:
        """Put the rows of a version on the disk. Nobody sees them before they are decided on."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        content = sink.getvalue()
        digest = hashlib.sha256(content).hexdigest()[:_LETTERS]
        place = self.folder / f"{digest}{ARROW}"
        place.make_folder()
        place.write(content.to_pybytes(), durable=True)
        return Version(digest, pin, read)

    def decide(self, batch: int, version: Version) -> Version:
        """Let batches from this one on see a version; an earlier decision on that batch holds."""
        place = self._place(batch)
        place.write_first(dump_json(version))
        if place.path is not None:
            sync_files([place.path])
        return self._read(batch)

    def starts(self) -> list[int]:
        """The first batch of each version that is still kept, in order."""
        names = self.folder.names()
        return sorted(int(name[: -len(_DECISION)]) for name in names if name.endswith(_DECISION))

    def of(self, batch: int) -> Version:
        """The version that a batch sees."""
        found = [start for start in self.starts() if start <= batch]
        if not found:
            raise self._lost(f"no version of the table is kept for batch {batch}")
        return self._read(found[-1])

    def newest(self) -> Version:
        """The version that was decided on last."""
        starts = self.starts()
        if not starts:
            raise self._lost("no version of the table is kept")
        return self._read(starts[-1])

    def rows(self, version: Version) -> pa.Table:
        """The rows of a version, which must be what was written."""
        import pyarrow as pa

        place = self.folder / f"{version.digest}{ARROW}"
        try:
            content = place.read()
        except FileNotFoundError:
            raise self._lost("the file of a version's rows is gone") from None
        if hashlib.sha256(content).hexdigest()[:_LETTERS] != version.digest:
            raise self._lost("the file of a version's rows is damaged")
        return pa.ipc.open_file(pa.BufferReader(content)).read_all()

    def forget(self, before: int) -> None:
        """Remove versions that no batch from ``before`` on sees."""
        starts = self.starts()
        old = [start for start, after in pairwise(starts) if after <= before]
        if not old:
            return
        kept = {self._read(start).digest for start in starts if start not in old}
        for start in old:
            digest = self._read(start).digest
            self._place(start).remove()
            if digest not in kept:
                (self.folder / f"{digest}{ARROW}").remove()

    def _read(self, batch: int) -> Version:
        try:
            return load_json(Version, self._place(batch).read_text())
        except (FileNotFoundError, ValueError) as error:
            raise self._lost(f"a decided version cannot be read: {error}") from None

    def _place(self, batch: int) -> Location:
        return self.folder / f"{batch:09d}{_DECISION}"

    def _lost(self, what: str) -> RunError:
        return RunError(
            f"{what}: the rows of the reference table {self.table!r} that the run saw are lost",
            where=str(self.folder),
            fix="restore the run's folder from a copy, or start a new run",
        )

"""The contract of archives: all that the system asks of a place where a log's history is kept.

An archive is one class, the section of the YAML (:class:`Archive`), and one reader
(:class:`ArchiveReader`). One that is a folder of files has most of both from `folder.py`. The
YAML's ``type`` finds the class in `config.archive.ARCHIVES`, or among the entry points of the group
``tidemill.archives``; nothing else has to know of it.

The life of an archive in a run:

1. *Plan* (driver): :meth:`Archive.pin` fixes one state of it, :meth:`Archive.open` reads what its
   metadata tells. Nothing is written.
2. *Start* (driver): the manifest holds the pin. :meth:`Archive.hold` keeps the pinned state from
   being deleted, :meth:`Archive.keep` gives what readers need, to be put beside the manifest. A
   start that died is repeated: both must be safe to do twice.
3. *Run* (the driver, Spark's source process; again at every restart): :meth:`Archive.reopen` makes
   the reader from the pin and from what was kept, without a catalog. Readers are pickled, with
   pieces of files, to executors, which only call :meth:`ArchiveReader.read`.
4. *End* (driver): :meth:`Archive.release`.

From 2 on the manifest decides, not the YAML, which may have changed: these are class methods of the
class that the pin's ``kind`` names. The easy mistake is to look at the archive as it is *now*
instead of as it was pinned: a restart would see other rows.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.config.archive import ArchiveColumns
from tidemill.connectors.pieces import PieceReader
from tidemill.types import BEGINNING, FOREVER_MICROS, to_micros

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime, timedelta
    from pathlib import Path

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from tidemill.archive.progress import ArchiveProgress
    from tidemill.planning.manifest import ArchivePin, SourcePin
    from tidemill.planning.statistics import Extent


class ArchiveReader(PieceReader, Protocol):
    """It reads one pinned archive. The driver makes it; Spark pickles it to executors.

    Everything it returns is a pure function of the pin: a re-run of a batch sees the same rows.
    """

    pin: SourcePin

    def columns(self) -> dict[str, str]:
        """All columns of the archive at the pin, with their types as its format writes them.

        The type of a time begins with ``timestamp``. Planning compares the columns with those it
        knows, and for known code it asks nothing else: where :meth:`schema` takes time to load, a
        reader finds the columns without it.
        """
        return {field.name: str(field.type) for field in self.schema()}

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The same columns, with their Arrow types."""

    def verify(self) -> None:
        """Raise an error for what could not be read exactly. The driver asks once, in a plan.

        By default the only such thing is a filter that does not fit the columns.
        """
        if self.pin.rows.where is not None:
            from tidemill.connectors.archives.filtering import where_condition

            where_condition(self.schema(), self.pin.rows.where, self.pin.location)

    @abstractmethod
    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        """Handles of the files with rows in ``[start, end)``, with what metadata tells of them.

        Only the driver asks. The bounds of an extent may be wider than its rows, never narrower.
        """

    def ingest_span(self) -> tuple[int, int] | None:
        """The first and the last ingest time of all rows, as metadata tells; None without rows.

        Asked only to say where rows are, when a range has none. The easy mistake is to look into
        every file: of a large archive that takes minutes.
        """
        found = [extent for _, extent in self.extents(to_micros(BEGINNING), FOREVER_MICROS)]
        return (min(e.first for e in found), max(e.last for e in found)) if found else None

    def differences(self, start: int, end: int) -> dict[str, str]:
        """What a plan must say of columns that files with rows in ``[start, end)`` do not share.

        The result is by column. A difference that could change a value is an error already. By
        default there is none: all files of a table have its columns. Only the driver asks.
        """
        return {}

    def sample(self, rows: int) -> Iterator[pa.RecordBatch]:
        """About so many rows of different parts, for 'tidemill init', which then looks at them.

        Nothing is known of their times yet: those of the pin are empty. Nested columns may be left
        out. An archive that cannot be read like this has none, and `init` does not do for it.
        """
        return iter(())


class Archive(ArchiveColumns):
    """The section of the YAML that names an archive. Heavy imports stay inside of its methods."""

    @classmethod
    def recognise(cls, place: str) -> dict[str, Any] | None:
        """The keys by which the YAML names a place that a user gives to 'tidemill init'.

        ``place`` is an absolute path, a URI, or any other text, such as a table's name. None: it is
        no archive of this kind, or nobody can tell.
        """
        return None

    @abstractmethod
    def pin(self, catalog: Catalog, base: Path, where: str) -> ArchivePin:
        """Fix the archive as it is now; one that is not there is an error. Driver, in every plan.

        ``base`` is the folder of the YAML, to which paths are relative; ``where`` names the stream
        in errors.
        """

    def examine(self, catalog: Catalog, base: Path, where: str) -> str:
        """What 'tidemill doctor' says of the archive: what it is, and how much it holds."""
        pin = self.pin(catalog, base, where)
        return f"{pin.location}, {self.describe(pin)}"

    @classmethod
    @abstractmethod
    def describe(cls, pin: ArchivePin) -> str:
        """The pinned state in a few words, for a plan: ``snapshot 5``, ``12 files``."""

    @classmethod
    @abstractmethod
    def open(cls, pin: SourcePin, catalog: Catalog) -> ArchiveReader:
        """The reader of the pinned state, from the archive itself. Driver.

        What is pinned and is no longer there, or is another archive by now, is an error.
        """

    @classmethod
    @abstractmethod
    def reopen(
        cls, pin: SourcePin, kept: Path, properties: dict[str, str], schema: pa.Schema
    ) -> ArchiveReader:
        """The reader of the pinned state, from the file that holds what :meth:`keep` gave.

        In every process of a run, without a catalog and as fast as can be; ``properties`` are
        those of the catalog, with which its files are opened, ``schema`` is what the reader told.
        """

    @classmethod
    def keep(cls, reader: ArchiveReader) -> bytes | None:
        """What :meth:`reopen` needs beside the pin, or None. The driver asks once per phase."""
        return None

    @classmethod
    def hold(cls, pin: ArchivePin, catalog: Catalog, run: str, newest: int | None = None) -> None:
        """Keep the pinned state from being deleted while the run needs it. Driver.

        Doing it twice changes nothing. A run that follows the archive as it grows gives ``newest``:
        of all states that the run holds, only so many of the newest must stay.
        """

    @classmethod
    def release(cls, pin: ArchivePin, catalog: Catalog, run: str) -> None:
        """Let go of all that the run held; an archive that is gone needs no letting go. Driver."""

    @classmethod
    def age(
        cls, pin: ArchivePin, catalog: Catalog, now: datetime
    ) -> tuple[timedelta, timedelta] | None:
        """How old the pinned state is, and how old a state may get before it is deleted.

        None if nobody deletes it by age, or nobody says so. Driver, for the risks of a plan.
        """
        return None

    @classmethod
    def covers(cls, pin: ArchivePin, location: str) -> bool:
        """Whether a folder belongs to the archive, so that no table may be written there. Driver.

        ``location`` is a path or a URI.
        """
        return False

    @classmethod
    def is_table(cls, pin: ArchivePin, table: str) -> bool:
        """Whether the archive is the Iceberg table with this id, by whatever name. Driver."""
        return False

    @classmethod
    def reached(cls, pin: ArchivePin, catalog: Catalog) -> dict[int, ArchiveProgress]:
        """How far the pinned state follows its log, by partition; empty if it does not say so.

        A run can only go on live where this says it can, see :meth:`ArchiveColumns.as_table`.
        """
        return {}

    @classmethod
    def newest(cls, pin: ArchivePin, catalog: Catalog) -> ArchivePin:
        """The same archive as it is now, for a run that follows it. Driver."""
        return pin

"""A run on disk: the name of every file that a run keeps beside its tables.

What must lie on a disk of the driver's machine is a ``Path`` here: what is locked, and what Spark
itself writes. Everything else is a ``Location`` (``storage.location`` says why), except the pinned
metadata of tables, which their readers open by themselves.
Executors get the locations of side files, fold state and the checkpoint, and no other.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest
from tidemill.storage.disk import sync_files
from tidemill.storage.location import Location


def new_run_id(now: datetime) -> str:
    """Sorts by time, fits into a table's name."""
    return f"{now:%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"


@dataclass(frozen=True)
class RunFolder:
    """Everything a run keeps beside its tables, below ``home/runs/<run>``."""

    path: Path

    @classmethod
    def of(cls, home: Path, run: str) -> RunFolder:
        """The folder of a run; the id must be a plain name."""
        if not run or "/" in run or run.startswith("."):
            raise RunError(f"{run!r} is not a run id", fix="'tidemill runs' lists them")
        return cls(home / "runs" / run)

    @property
    def files(self) -> Location:
        """The folder itself."""
        return Location.of(self.path)

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint: its offset and commit logs (``runfolder.offset_log``), its state."""
        return self.path / "checkpoint"

    @property
    def spark_state(self) -> Path:
        """The state of Spark's own operators."""
        return self.checkpoint / "state"

    @property
    def spark_log(self) -> Path:
        """What the JVM has to say."""
        return self.path / "spark.log"

    @property
    def lease(self) -> Path:
        """Locked by the driver."""
        return self.path / "lease"

    @property
    def watch(self) -> Path:
        """Locked by the supervisor."""
        return self.path / "watch"

    @property
    def control_lock(self) -> Path:
        """Locked by whoever changes the control file."""
        return self.path / "control.lock"

    @property
    def manifest(self) -> Location:
        """What the run decided before it started."""
        return self.files / "manifest.json"

    @property
    def control(self) -> Location:
        """How far sources may read."""
        return self.files / "control.json"

    @property
    def journal(self) -> Location:
        """The batches that a rewound run repeats."""
        return self.files / "journal.json"

    @property
    def jvm(self) -> Location:
        """The JVM of the last driver."""
        return self.files / "jvm.json"

    @property
    def sent(self) -> Location:
        """The last batch whose messages are all in the topics."""
        return self.files / "topics.json"

    @property
    def side(self) -> str:
        """Where readers leave late and dead rows and counts, as a URI."""
        return (self.path / "side").absolute().as_uri()

    @property
    def state(self) -> str:
        """Where folds keep their state, as a URI."""
        return (self.checkpoint / "folds").absolute().as_uri()

    def lag(self, source: str) -> Location:
        """How far a live source is behind its log."""
        return self.files / f"lag.{source}.json"

    def next_times(self, source: str) -> Location:
        """When the next row of each partition of a live source came."""
        return self.files / f"next.{source}.json"

    def phases(self, number: int) -> Location:
        """A decision on history and the live log; 0 is the only file of earlier versions."""
        return self.files / (f"course-{number}.json" if number else "course.json")

    def slices(self, source: str) -> Location:
        """The folder of a source's decided slices."""
        return self.files / "slices" / source

    def reading_lists(self, source: str) -> Location:
        """The folder of what the requests of a source's slices came to."""
        return self.files / "requests" / source

    def table(self, source: str, leg: int = 0) -> Path:
        """The pinned metadata of a source's table, for one leg of history."""
        return self.path / "tables" / (f"{source}@{leg}.json" if leg else f"{source}.json")

    def write_manifest(self, manifest: Manifest) -> None:
        """Once, before the run starts."""
        (self.path / "tables").mkdir(parents=True)
        self.manifest.write(manifest.to_json(), durable=True)
        sync_files([self.path])

    def has_manifest(self) -> bool:
        """Whether the run was written down."""
        return self.manifest.exists()

    def read_manifest(self) -> Manifest:
        """What the run decided."""
        try:
            return Manifest.from_json(self.manifest.read_text())
        except FileNotFoundError:
            run = self.path.name
            raise RunError(
                f"the run {run} has lost its folder",
                where=str(self.path),
                fix="restore it from a copy; or go on for a live run with 'tidemill run PIPELINE "
                f"--recover-from-archive {run}'; or give it up with 'tidemill cancel {run}' and "
                "start again",
            ) from None
        except RunError as error:
            raise RunError(error.message, where=str(self.manifest), fix=error.fix) from None

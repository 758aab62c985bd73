"""A run's folder: the name of every file that a run keeps beside its tables.

Every file is read and written by its URI through one handle (``storage.location.Location``). Only
these must lie on a disk of the driver's machine; the functions that touch them take a ``Path``, all
others take any ``Place``:

- what is locked (the lease, the supervisor's watch, the lock of the control file): the lock is the
  kernel's, which lets go of it when a process is killed;
- what the first writer decides (decided slices and versions, phases, reading lists, succession,
  cohorts and their meetings; ``Location.write_first``): a hard link fails if the name is taken, and
  Arrow has no such operation for other stores;
- Spark's log and checkpoint, which Spark writes by itself. The checkpoint's offset log is read by
  its URI, but its newest entry is synced, and a rewind removes Spark's own state, by the path;
- what an archive keeps of a pinned table (``RunFolder.table``), which it reads again by itself.

Because of the first two, ``home:`` is a local folder, and so is a run's folder in it. The registry
of runs is a SQLite file beside the runs' folders, and no part of them. Executors get the locations
of side files, failed rows, fold state (also carried state), the checkpoint, unions and the rows of
reference tables, and no other: on a cluster only these must be reached from every machine.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tidemill.errors import RequestError, RunError
from tidemill.planning.manifest import Manifest
from tidemill.storage.disk import sync_files
from tidemill.storage.location import Location

# Locked: on a disk of the driver's machine.
LEASE = "lease"  # by the driver
WATCH = "watch"  # by the supervisor
CONTROL_LOCK = "control.lock"  # by whoever changes the control file
# Written by the JVM.
CHECKPOINT = "checkpoint"
SPARK_LOG = "spark.log"
SPARK_OFFSETS = "offsets"  # in the checkpoint: a file per batch that was begun
SPARK_COMMITS = "commits"  # in the checkpoint: a file per batch that is committed
SPARK_STATE = "state"  # of Spark's own operators, in the checkpoint
# Written line by line, by the driver.
DRIVER_LOG = "driver.log"
COMMAND_LOG = "command.log"  # what a command printed that nobody sat before, by the command
OLD_DRIVER_LOG = "driver.1.log"  # what was moved aside when the log was full
CHILDREN_LOG = "children.log"  # what the processes that drive this run's children print
# Written whole.
CARRIED = "carried"  # fold state of another run, with which this one began
MANIFEST = "manifest.json"
CONTROL = "control.json"  # how far sources may read
JOURNAL = "journal.json"  # the batches that a rewound run repeats
JVM = "jvm.json"  # of the last driver
SENT = "topics.json"  # the last batch whose messages are all in the topics
JUDGEMENT = "judgement.json"  # what became of the run's expectations
CALLED = "called.json"  # for which batches callbacks may have been called
RETRY = "retry.json"  # a commit that is tried again
JUDGED_ROWS = "judged_rows.json"  # the same of the rows that a live run has written so far
COMPARED = "compared.json"  # how the outputs differ from production, by the last comparison
LAG = "lag.{source}.json"  # how far a live source is behind its log
NEXT_TIMES = "next.{source}.json"  # when the next row of each of its partitions came
REWRITTEN = "rewritten-{output}.txt"  # files that publishing has written, until they are committed
# Decisions: the first writer's holds.
SUCCESSION = "successor-{run}.json"  # whether the run that upgrades this one has taken over
PHASES = "phases-{number}.json"  # where sources go: more history, or the live log
SLICES = "slices"  # a folder per source, a file per decided slice
VERSIONS = "reference"  # a folder per reference table: its rows, a file per decided version
READING_LISTS = "requests"  # a folder per source, a file per slice of a feed
COHORTS = "cohorts"  # a file per cohort of instances that a child run catches up
MEETINGS = "meetings"  # a file per meeting: the frontier at which a child and this run meet
OUTCOMES = "outcomes"  # a file per meeting that is over
ENDINGS = "endings"  # a file per cohort that has no union to wait for any more
UNIONS = "unions"  # a file per batch that begins with the state of a child, too
# Written whole by executors, and by the driver for the schemas of pinned tables.
ARROW = ".arrow"
READ_ROWS = ".rows"  # beside a task's side file: how many rows it has read so far
SIDE_SLICE = "{source}/{start}-{end}"  # below RunFolder.side: a file per task of a slice
STATE_VERSION = "{operator}/{batch:09d}"  # below RunFolder.state: a file per bucket of keys
FAILED_ROWS = "{operator}/{batch:09d}"  # below RunFolder.failed: a file per bucket of keys


def numbered(folder: str, number: int) -> str:
    """The Arrow file of one task in a SIDE_SLICE, or of a bucket in STATE_VERSION, FAILED_ROWS."""
    return f"{folder}/{number:05d}{ARROW}"


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
            raise RequestError(f"{run!r} is not a run id", fix="'tidemill runs' lists them")
        return cls(home / "runs" / run)

    @property
    def files(self) -> Location:
        """The folder itself, by its URI."""
        return Location.of(self.path)

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint: its offset and commit logs (``runfolder.offset_log``), its state."""
        return self.path / CHECKPOINT

    @property
    def side(self) -> str:
        """Where readers leave late and dead rows and counts, as a URI."""
        return (self.path / "side").absolute().as_uri()

    @property
    def failed(self) -> str:
        """Where folds leave the rows at which a user's code failed, as a URI."""
        return (self.path / "failed").absolute().as_uri()

    @property
    def state(self) -> str:
        """Where folds keep their state, as a URI."""
        return (self.checkpoint / "folds").absolute().as_uri()

    @property
    def carried(self) -> str:
        """The fold state that the run begins with, as a URI; it outlives the checkpoint."""
        return (self.path / CARRIED).absolute().as_uri()

    def table(self, source: str, phase: int = 0) -> Path:
        """The pinned metadata of a source's table, for one phase of history."""
        return self.path / "tables" / (f"{source}@{phase}.json" if phase else f"{source}.json")

    def rewritten(self, output: str) -> Path:
        """The files that publishing an output has written again, line by line."""
        return self.path / REWRITTEN.format(output=output)

    def write_manifest(self, manifest: Manifest) -> None:
        """Once, before the run starts."""
        (self.path / "tables").mkdir(parents=True)
        (self.files / MANIFEST).write(manifest.to_json(), durable=True)
        sync_files([self.path])

    def begin_again(self, manifest: Manifest) -> None:
        """Forget all batches that were begun, and keep the manifest instead of the one before.

        Only for a run that has committed nothing. What goes may be half of what a batch left.
        """
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.remove_aside()
        (self.files / MANIFEST).write(manifest.to_json(), durable=True)

    def remove_aside(self) -> None:
        """Drop what tasks have left beside the output: no batch will ask for it any more."""
        Location(self.side).remove_folder()
        Location(self.failed).remove_folder()

    def has_manifest(self) -> bool:
        """Whether the run was written down."""
        return MANIFEST in self.files.names()

    def read_manifest(self) -> Manifest:
        """What the run decided."""
        try:
            return Manifest.from_json((self.files / MANIFEST).read_text())
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
            where = str(self.files / MANIFEST)
            raise RunError(error.message, where=where, fix=error.fix) from None

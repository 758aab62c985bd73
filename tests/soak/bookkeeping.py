"""The driver's bookkeeping without Spark: many batches of a quiet live run, one after the other.

Everything that the driver does for a batch is the real code: the slice is decided and written
down, the committer reads the offset log, takes the side files, stamps and commits, forgets old
slices and state; the registry records the batch. What executors and Spark do for it is done here
in the smallest form: an entry in the offset log, a side file, a state file, now and then a data
file. Most batches of a quiet topic have no row for a table, so most commit nothing.
"""

import json
import pickle
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import yaml

from tests.manifests import make_manifest, make_pin
from tests.soak.tenths import Tenths, count_files
from tidemill.connectors.archives.opening import keep_metadata
from tidemill.connectors.sinks.contract import SinkRun
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.table import IcebergTable, open_sides
from tidemill.connectors.sinks.writing import Target, write_files
from tidemill.folds.state import Label, StateFiles
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.manifest import HistoryPhase, LivePin, Manifest
from tidemill.planning.offsets import Offset
from tidemill.planning.requests import Goal
from tidemill.project import Project, load
from tidemill.reading.sidefile import Counts, write_side_file
from tidemill.reading.slicing import Slicing
from tidemill.runfolder.control import read_released
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.driving.committer import Committer
from tidemill.runtime.driving.driver import Driver
from tidemill.runtime.driving.frames import Work
from tidemill.runtime.driving.pacing import Throttle
from tidemill.runtime.registry import Registry

SOURCE, RUN, FOLD = "plays", "soak", "windows"
BEGIN, SECOND = 1_767_225_600_000_000, 1_000_000
_LOOK = 500
"""Batches between two looks at memory and files."""
_STATE = pa.table({"key": pa.array([1, 2, 3], pa.int64())})


class _Told:
    """Stands for the DataFrame of a batch whose tasks have written their files themselves.

    Without a session Spark tells nothing of the tasks.
    """

    sparkSession = None

    def __init__(self, files: list[Any]) -> None:
        self._files = files

    def collect(self) -> list[dict[str, Any]]:
        """What the tasks tell."""
        return [
            {"output": "output", "file": pickle.dumps(file), "rows": 1, "suppressed": 0}
            for file in self._files
        ]


class Books:
    """A run that only keeps books."""

    def __init__(self, folder: Path, *, commit_every: int = 500) -> None:
        self.project = _project(folder)
        self.commit_every = commit_every
        manifest = _manifest()
        self.folder = RunFolder.of(self.project.loaded.home, RUN)
        self.folder.write_manifest(manifest)
        self.registry: Registry = self.project.registry
        self.registry.add(RUN, manifest.pipeline, manifest.identity.mode)
        self.catalog = open_catalog(self.project.loaded)
        keep_metadata(manifest.sources[SOURCE], self.catalog, self.folder.table(SOURCE))
        run = SinkRun(self.project.loaded, self.catalog, manifest, self.folder.path)
        output, sides = IcebergTable(run, manifest.outputs.sinks["output"]), open_sides(run)
        for table in (output, *sides.values()):
            table.prepare(None)
        self.target: Target = output.destination()
        slicing = Slicing(Work(self.project.loaded, manifest, self.folder).options(SOURCE))
        self.slicing, self.manifest = slicing, manifest
        committer = Committer(manifest, self.folder, {"output": output}, sides, {SOURCE: slicing})
        self.driver = Driver(
            manifest, self.folder, self.registry, committer, lambda record: None, Goal()
        )
        self.driver._throttle = Throttle(self.folder, manifest)
        self.state = StateFiles(self.folder.state)
        for name in ("offsets", "commits"):
            (self.folder.checkpoint / name).mkdir(parents=True)
        self.at = slicing.route.first()

    def batch(self, number: int) -> None:
        """One batch from its decision to its end."""
        start = self.at
        released = read_released(self.folder.path, SOURCE)
        end = self.slicing.route.next(start, released, _decide)
        assert end != start
        self._enter("offsets", number, end)
        self._execute(number, start, end)
        files = self._files(number) if number % self.commit_every == 0 else []
        self.driver._handle(_Told(files), number)  # type: ignore[arg-type]
        self.registry.totals(RUN)  # what a progress line shows
        self._enter("commits", number, end)
        self.at = end

    def _enter(self, log: str, number: int, end: Offset) -> None:
        """As Spark does: an entry, and the oldest one removed."""
        about = json.dumps({"batchWatermarkMs": end.frontier // 1_000})
        text = "\n".join(["v1", about, json.dumps(end.to_json())])
        (self.folder.checkpoint / log / str(number)).write_text(text, "utf-8")
        old = number - self.manifest.resources.keep_batches
        (self.folder.checkpoint / log / str(old)).unlink(missing_ok=True)

    def _execute(self, number: int, start: Offset, end: Offset) -> None:
        """What tasks leave: counts, and the fold's state."""
        for name in self.slicing.side_names(start, end):
            write_side_file(self.folder.side, name, [], Counts(on_time=1))
        self.state.write(
            Label(FOLD, "windows", number, 0, 1, end.frontier // 1_000, ("key",), "at"), _STATE
        )

    def _files(self, number: int) -> list[Any]:
        rows = pa.table({"n": [number], "t": pa.array([BEGIN], pa.int64())})
        rows = rows.cast(pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))]))
        return list(write_files(self.target.metadata, self.target.io, rows))

    def kept(self) -> list[Path]:
        """The folders in which nothing may pile up: the run's own."""
        return [self.folder.path]


def soak(folder: Path, batches: int, *, commit_every: int = 500) -> Tenths:
    """Keep the books of so many batches; time is the processor's: other load does not count."""
    books, found = Books(folder, commit_every=commit_every), Tenths(batches)
    process = psutil.Process()
    with counted_queries() as queries:
        for number in range(batches):
            tenth, asked, began = found.of(number), queries[0], time.process_time()
            books.batch(number)
            tenth.seconds.append(time.process_time() - began)
            tenth.queries += queries[0] - asked
            if number % min(_LOOK, max(1, batches // 20)) == 0:
                tenth.memory = max(tenth.memory, process.memory_info().rss)
                tenth.files = max(tenth.files, count_files(books.kept()))
    assert books.registry.totals(RUN).batches == batches
    return found


@contextmanager
def counted_queries() -> Iterator[list[int]]:
    """Counts the statements that are sent to SQLite through Python's own module."""
    count = [0]
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        made = connect(*args, **kwargs)
        made.set_trace_callback(lambda _: count.__setitem__(0, count[0] + 1))
        return made

    sqlite3.connect = traced  # type: ignore[assignment]
    try:
        yield count
    finally:
        sqlite3.connect = connect


def _decide(start: Offset, widest: int, rate: int | None) -> Offset:
    del widest, rate
    positions = {number: at + 1 for number, at in (start.positions or {}).items()}
    return Offset(SOURCE, start.frontier + SECOND, positions)


def _project(folder: Path) -> Project:
    live = {
        "type": "kafka",
        "brokers": "127.0.0.1:1",
        "topic": "t",
        "schema": "n long, t timestamp",
    }
    archive = {"type": "iceberg", "table": "events.plays", "ingest_time": "ingest_ts"}
    sink = {"table": "marts.soak", "time": "t"}
    config = {
        "streams": {
            SOURCE: {"event_time": "t", "lateness": "1 s", "live": live, "archive": archive}
        },
        "pipelines": {"soak": {"entry": "pipelines:soak", "sinks": {"output": sink}}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(config), "utf-8")
    return load(folder / "tidemill.yaml")


def _manifest() -> Manifest:
    shape = {"type": "struct", "fields": [
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
        {"name": "t", "type": "timestamp", "nullable": True, "metadata": {}},
    ]}  # fmt: skip
    live = LivePin(
        "kafka", "t", slack=0, max_rows=9, trigger=0,
        format={"kind": "json", "columns": "n long, t timestamp"},
    )  # fmt: skip
    pin = make_pin(SOURCE, None, "t", "ingest_ts", columns=("n", "t"),
        partition="log_partition", offset="log_offset", live=live,
        phase=HistoryPhase(BEGIN, positions={"0": 0, "1": 0}),
    )  # fmt: skip
    return make_manifest(
        run=RUN, pipeline="soak", mode="live", created=BEGIN,
        output=(0, 253_402_214_400_000_000), boundaries=(BEGIN,), sources={SOURCE: pin},
        sinks={"output": table_pin("marts.soak", json.dumps(shape), "t", partition_by="day")},
        late_table="marts.soak__late", dead_table="marts.soak__dead", parallelism=2, shuffles=2,
        folds={FOLD: FoldPin(gives=True)}, ends=False, misalignment=3_600 * SECOND,
    )  # fmt: skip

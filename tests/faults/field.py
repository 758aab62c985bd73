"""One log, its archives in each catalog, and what must come out of it: the ground of the campaign.

The log is written once, in its first half followed by the archive ``half``, whose end is where runs
go live. The archive ``full`` has all of it: for backfills, and to recover from. Every combination
is a run of its own over the same log, into tables of its own.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.table import Table

from tests.faults.catalogs import Catalogs
from tests.faults.steps import table_of
from tests.kafka.broker import Broker
from tests.live.seam import LATENESS, SIZE, Record, count, read_log
from tidemill.iceberg.catalog import find_table, open_catalog
from tidemill.project import Project, load
from tidemill.testing import assert_same_rows
from tidemill.types import from_micros, to_micros

HISTORY = timedelta(seconds=4)
LIVE = timedelta(seconds=9)
_CODE = """
from tests.faults import pipelines
from tidemill import pipeline

folded = pipeline(pipelines.folded)
native = pipeline(pipelines.native)
"""
_PARTITIONS = 2


class Log:
    """The topic. Rows come for as long as the archives take, and some seconds more."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.chance = random.Random(7)
        self.number = 0
        self._ending = threading.Event()
        broker.create_topic(topic, partitions=_PARTITIONS)
        self.began = datetime.now(UTC)
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        while not self._ending.is_set():
            self.broker.produce(self.topic, [self._row(kind) for kind in self._kinds()])
            time.sleep(0.25)

    def _kinds(self) -> list[str]:
        """Every second all kinds, so that every slice has them."""
        rare = ("late", "dead", "future", "plain")[self.number // 5 % 4]
        return ["plain"] * 4 + [rare]

    def _row(self, kind: str) -> tuple[int, None, bytes]:
        self.number += 1
        partition = self.chance.randrange(_PARTITIONS)
        if kind == "dead":
            return partition, None, b"not json"
        delay = {"late": 4.0, "future": -3.0}.get(kind, self.chance.choice([0.0, 0.3, 0.9, 1.6]))
        at = datetime.now(UTC) - timedelta(seconds=delay)
        record = {"show": self.chance.randrange(3), "n": self.number, "event_ts": at.isoformat()}
        return partition, None, json.dumps(record).encode()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self.ended = datetime.now(UTC)

    @cached_property
    def records(self) -> list[Record]:
        """All of it, judged one by one in plain Python."""
        return read_log(self)  # type: ignore[arg-type]


class Field:
    """The log with its archives; makes a project for every combination."""

    def __init__(self, folder: Path, broker: Broker, topic: str, catalogs: Catalogs) -> None:
        self.folder, self.broker, self.catalogs = folder, broker, catalogs
        folder.mkdir(parents=True, exist_ok=True)
        self.log = Log(broker, topic)
        self.seams: dict[str, datetime] = {}

    def archive(
        self, names: tuple[str, ...], run_archive: Callable[[Path], dict[str, Any]]
    ) -> None:
        """Follow the log in each catalog; ``capture`` is what a driver does with a project."""
        _sleep_until(self.log.began + HISTORY + timedelta(seconds=2))
        for name in names:
            done = run_archive(self._write("half", name, "half"))
            self.seams[name] = from_micros(done["frontier"])
        _sleep_until(max(self.seams.values()) + LIVE + LATENESS + SIZE)
        self.log.end()
        _sleep_until(self.log.ended + timedelta(seconds=1))
        for name in names:
            run_archive(self._write("full", name, "full"))

    def plot(self, name: str, catalog: str, *, history: bool) -> "Plot":
        """A project of its own for one run: a backfill, or from history into live."""
        seam = self.seams[catalog]
        if history:
            start, end, archive = seam - timedelta(seconds=2), seam + timedelta(seconds=2), "full"
        else:
            start, end, archive = seam - HISTORY, None, "half"
        config = self._write(name, catalog, archive)
        if history:
            return Plot(self, name, catalog, config, start, end)
        return Plot(self, name, catalog, config, start, end, seam, seam + LIVE)

    def recoverable(self, plot: "Plot") -> None:
        """From now on its project sees the archive that has followed the whole log."""
        self._write(plot.name, plot.catalog, "full")

    def _write(self, name: str, catalog: str, archive: str) -> Path:
        folder = self.folder / catalog / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pipelines.py").write_text(_CODE, "utf-8")
        common = {"trigger": "100 ms", "max_misalignment": "2 s"}
        counts = {"table": f"marts.{name}_counts", "time": "window_start"}
        each = {"table": f"marts.{name}_each", "time": "event_ts"}
        config = {
            "home": str(self.folder / catalog / "home"),  # what is known of the code is kept there
            "catalog": self.catalogs.section(catalog),
            "spark": {"master": "local[2]"},
            "streams": {"plays": {
                "event_time": "event_ts", "lateness": "2 s", "skew": "1 s",
                "archive": {"type": "iceberg", "table": f"events.{archive}",
                            "ingest_time": "ingest_ts", "partition": "log_partition",
                            "offset": "log_offset"},
                "live": {"type": "kafka", "brokers": self.broker.brokers, "topic": self.log.topic,
                         "schema": "show long, n long, event_ts timestamp", "slack": "300 ms"},
            }},
            "pipelines": {
                "folded": {**common, "entry": "pipelines:folded",
                           "sinks": {"counts": counts, "each": each}},
                "native": {**common, "entry": "pipelines:native", "sinks": {"output": counts}},
            },
        }  # fmt: skip
        path = folder / "tidemill.yaml"
        path.write_text(yaml.safe_dump(config), "utf-8")
        return path


@dataclass(frozen=True)
class Plot:
    """One project, and what one run of it must leave."""

    field: Field
    name: str
    catalog: str
    config: Path
    start: datetime
    end: datetime | None  # of a backfill
    seam: datetime | None = None
    goal: datetime | None = None  # the frontier at which a live run stops

    @property
    def project(self) -> Project:
        return load(self.config)

    def run_folder(self, run: str) -> Path:
        return self.project.loaded.home / "runs" / run

    def is_done(self, run: str) -> bool:
        """Whether the run is at its end: finished, or at its goal."""
        if self.goal is None:
            return self.project.registry.get(run).state == "finished"
        return (self.project.registry.totals(run).frontier or 0) >= to_micros(self.goal)

    def check(self, first: str, last: str) -> None:
        """The tables equal a plain count over the log.

        ``last`` is the run itself, or the one that went on for it when its folder was lost.
        """
        result = self.project.status(last)
        manifest = json.loads((self.run_folder(first) / "manifest.json").read_text("utf-8"))
        low = manifest["times"]["boundaries"][0]
        if self.end is not None:
            high = manifest["times"]["boundaries"][-1]
            closed = self.end
        else:
            assert result.totals.frontier is not None
            high = result.totals.frontier
            assert self.goal is not None and high >= to_micros(self.goal), "the goal is not reached"
            closed = from_micros(high) - LATENESS - SIZE
        read = [record for record in self.field.log.records if low <= record.ingest < high]
        # A live run gives the late and dead rows of its range, a backfill beside its shadow all.
        first_kept = low if self.end is not None else to_micros(self.start)
        kept = [record for record in read if record.ingest >= first_kept]
        tables = (*result.outputs.values(), result.late, result.dead)
        found = {table_of(table): self._rows(table) for table in tables}
        expected = {
            "counts": count(read, self.start, closed),
            "late": _places(kept, "late", "future"),
            "dead": _places(kept, "dead"),
        }
        if "each" in found:
            expected["each"] = _each(read, self.start, self.end)
        found["counts"] = [
            {name: row[name] for name in ("show", "window_start", "plays", "sum")}
            for row in found["counts"]
            if row["window_start"] < closed
        ]
        for side in ("late", "dead"):
            names = ("partition", "offset")
            found[side] = [{name: row[name] for name in names} for row in found[side]]
        for kind, rows in expected.items():
            assert rows, f"nothing was expected in {kind}"
            assert_same_rows(found[kind], rows, kind)
        if first == last:
            totals = result.totals
            told = (totals.read, totals.late, totals.dead)
            late, dead = _places(read, "late", "future"), _places(read, "dead")
            assert told == (len(read), len(late), len(dead)), "counts differ"

    def tables(self, run: str) -> dict[str, str]:
        """Where each table of the run is now: its metadata file."""
        result = self.project.status(run)
        catalog = open_catalog(self.project.loaded)
        names = (*result.outputs.values(), result.late, result.dead)
        tables = {name: find_table(catalog, name) for name in names}
        return {name: table.metadata_location if table else "" for name, table in tables.items()}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        """A table's rows; no file of it may be there twice."""
        table: Table = open_catalog(self.project.loaded).load_table(name)
        files = [task.file.file_path for task in table.scan().plan_files()]
        assert len(files) == len(set(files)), f"{name} refers to a file twice"
        return table.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def _each(records: list[Record], start: datetime, end: datetime | None) -> list[dict[str, Any]]:
    return [
        {"show": record.show, "n": record.n, "event_ts": from_micros(record.event)}
        for record in records
        if record.verdict == "on time"
        and to_micros(start) <= record.event
        and (end is None or record.event < to_micros(end))
    ]


def _places(records: list[Record], *verdicts: str) -> list[dict[str, Any]]:
    return [
        {"partition": record.partition, "offset": record.offset}
        for record in records
        if record.verdict in verdicts
    ]


def _sleep_until(moment: datetime) -> None:
    with suppress(ValueError):
        time.sleep((moment - datetime.now(UTC)).total_seconds())

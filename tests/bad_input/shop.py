"""A small project to give bad input to, and what runs leave of it."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.bad_input.terminal import Outcome, run_cli
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.code.analysis import PipelineFacts, Usage
from tidemill.planning.code.margin import Margin
from tidemill.project import Project, load
from tidemill.runtime.code.cache import KnownCode, digest, remember
from tidemill.runtime.code.lookout import Looked
from tidemill.runtime.plans.planner import code_fingerprint
from tidemill.testing import assert_same_rows

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

T0 = datetime(2026, 1, 1, tzinfo=UTC)
FROM, TO = "2026-01-01T00:00Z", "2026-01-01T02:00Z"
RANGE = ("--from", FROM, "--to", TO)
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("amount", pa.int64()),
        ("country", pa.string()),
        ("event_ts", TIME),
        ("ingest_ts", TIME),
        ("part", pa.int32()),
        ("seq", pa.int64()),
    ]
)
YAML = """\
streams:
  plays:
    event_time: event_ts
    lateness: 10 min
    archive:
      type: iceberg
      table: logs.plays
      ingest_time: ingest_ts
      partition: part
      offset: seq
pipelines:
  sums:
    entry: pipelines:sums
    sinks:
      output: {table: marts.sums, time: t, key: [key, t]}
    max_misalignment: 1h
spark: {master: "local[2]"}
"""
CODE = """\
from pyspark.sql import DataFrame, functions as F

from tidemill import pipeline


@pipeline
def sums(plays: DataFrame) -> DataFrame:
    return (
        plays.groupBy(F.window("event_ts", "10 minutes"), "key")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("s"))
        .select(F.col("window.start").alias("t"), "key", "n", "s")
    )
"""
_SUMS = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("t", "timestamp"), ("key", "long"), ("n", "long"), ("s", "long"))
    ],
}
FACTS = PipelineFacts(
    columns={"plays": ("amount", "event_ts", "key")},
    usages=(Usage("node", "Aggregate"),),
    stateful=("window",),
    schemas={"output": json.dumps(_SUMS)},
    origins={"output": {"t": "window_start"}},
    margins={"output": {"t": Margin(after=timedelta(minutes=10))}},
)
"""What analysing `sums` tells: with it in the cache, the command line plans without Spark."""

_numbers = itertools.count()


def events(count: int = 240) -> list[dict[str, Any]]:
    """Two hours of rows, all on time."""
    return [
        {
            "key": index % 3,
            "amount": index,
            "country": ("DE", "FR")[index % 2],
            "event_ts": T0 + timedelta(seconds=30 * index - index % 90),
            "ingest_ts": T0 + timedelta(seconds=30 * index),
            "part": index % 2,
            "seq": index // 2,
        }
        for index in range(count)
    ]


def expected() -> list[dict[str, Any]]:
    """What `sums` must make of `events`: counted here, without any of our code."""
    found: dict[tuple[datetime, int], list[int]] = {}
    for row in events():
        event = row["event_ts"]
        window = event - timedelta(minutes=event.minute % 10, seconds=event.second)
        found.setdefault((window, row["key"]), []).append(row["amount"])
    return [
        {"t": window, "key": key, "n": len(amounts), "s": sum(amounts)}
        for (window, key), amounts in found.items()
    ]


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


@dataclass(frozen=True)
class Shop:
    """A project in a folder; every case may use a YAML of its own beside the others."""

    folder: Path
    yaml: str = "tidemill.yaml"

    @classmethod
    def make(cls, folder: Path, text: str = YAML, code: str = CODE) -> "Shop":
        """Write a project. Its archive is still missing."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tidemill.yaml").write_text(text, "utf-8")
        (folder / "pipelines.py").write_text(code, "utf-8")
        return cls(folder)

    def variant(self, *edits: tuple[str, str], append: str = "") -> "Shop":
        """The same project with an edited YAML; every edit must hit exactly once."""
        text = (self.folder / self.yaml).read_text("utf-8")
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        name = f"case-{next(_numbers)}.yaml"
        (self.folder / name).write_text(text + append, "utf-8")
        return Shop(self.folder, name)

    @property
    def path(self) -> Path:
        return self.folder / self.yaml

    @property
    def project(self) -> Project:
        return load(self.path)

    @property
    def catalog(self) -> "Catalog":
        return open_catalog(self.project.loaded)

    def fill(self, name: str, rows: pa.Table, files: int = 1, **properties: str) -> None:
        """An archive of so many files; properties are the table's own."""
        made = ensure_table(self.catalog, name, rows.schema, None, "none")
        if properties:
            with made.transaction() as transaction:
                transaction.set_properties(properties)
        size = -(-len(rows) // files)
        for at in range(0, len(rows), size):
            made.append(rows.slice(at, size))

    def know(self, facts: PipelineFacts = FACTS, columns: pa.Schema | None = None) -> "Shop":
        """Put the analysis of `sums` into the cache, as a plan before this one would have.

        ``columns``: the files' own, where the archive is no table.
        """
        loaded = self.project.loaded
        if columns is None:
            archive = self.catalog.load_table("logs.plays").schema()
            told = {field.name: str(field.field_type) for field in archive.fields}
        else:
            told = {field.name: str(field.type) for field in columns}
        known = KnownCode(("plays",), digest({"plays": told}), facts, Looked("salt"))
        remember(loaded.home, code_fingerprint(loaded, "sums"), known)
        return self

    def cli(self, *arguments: object) -> Outcome:
        return run_cli(*arguments, "--config", self.yaml, cwd=self.folder)

    def plan(self, *arguments: object, pipeline: str = "sums") -> Outcome:
        return self.cli("plan", pipeline, *(arguments or RANGE))

    def backfill(self, *arguments: object, pipeline: str = "sums") -> Outcome:
        return self.cli("backfill", pipeline, *RANGE, *arguments)

    def rows(self, run: str, counted: bool = True) -> list[dict[str, Any]]:
        """The committed output of a run; the registry's count must agree with it."""
        result = self.project.status(run)
        found = self.catalog.load_table(result.outputs["output"]).scan().to_arrow().to_pylist()
        assert not counted or len(found) == result.totals.out
        return list(found)

    def tags(self, name: str = "logs.plays") -> list[str]:
        """The tags of an archive."""
        return [ref for ref in self.catalog.load_table(name).metadata.refs if ref != "main"]

    def resumes(self, run: str) -> None:
        """After the cause is gone the run goes on, and its rows are those of an undisturbed one."""
        outcome = self.cli("resume", run)
        assert outcome.code == 0, outcome.err
        assert outcome.out.startswith(f"finished  run {run}")
        assert_same_rows(self.rows(run), expected())

    def traces(self) -> dict[str, Any]:
        """All that a run leaves: tables, tags on them, runs, folders, drafts of files."""
        home, catalog = self.project.loaded.home, self.catalog
        names = [
            ".".join(name)
            for namespace in catalog.list_namespaces()
            for name in catalog.list_tables(namespace)
        ]
        return {
            "tables": {name: sorted(catalog.load_table(name).metadata.refs) for name in names},
            "runs": [record.run for record in self.project.runs()],
            "folders": sorted(path.name for path in home.glob("runs/*")),
            "drafts": [path.name for path in home.rglob("*.tmp")],
        }


@contextmanager
def untouched(shop: Shop) -> Iterator[None]:
    """Nothing half written: what runs leave is the same before and after."""
    before = shop.traces()
    yield
    assert shop.traces() == before

"""Commits stay cheap: the 400th costs at most twice the 50th, in `make torture` the 2,000th."""

import statistics
import time
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.effort import times
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, commit_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files

pytestmark = pytest.mark.slow
BATCHES = times(400, torture=2_000)
AROUND = 25
OLD, YOUNG = "marts.old", "marts.young"
PATH = 1  # of a data file's fields


def test_a_late_commit_costs_no_more_than_twice_the_50th(tmp_path: Path) -> None:
    """Medians around each, of two tables in turn, so that other load falls on both alike."""
    catalog = SqlCatalog(
        "t", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}/wh"
    )
    schema = pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    rows = pa.table({"n": [1], "t": pa.array([0], pa.int64())}).cast(schema)
    tables = {name: ensure_table(catalog, name, schema, "t", "day") for name in (OLD, YOUNG)}
    files = {name: write_files(table.metadata, table.io, rows)[0] for name, table in tables.items()}

    def commit(name: str, batch: int) -> float:
        """One more file, in words: nobody reads it."""
        file = deepcopy(files[name])
        file[PATH] = file.file_path.replace(".parquet", f"-{batch}.parquet")
        began = time.perf_counter()
        assert commit_files(catalog, name, BatchStamp("run", batch, {"s": batch}, 0), [file])
        return time.perf_counter() - began

    for batch in range(BATCHES - AROUND):
        commit(OLD, batch)
    for batch in range(50 - AROUND):
        commit(YOUNG, batch)
    late, early = [], []
    for number in range(2 * AROUND):
        late.append(commit(OLD, BATCHES - AROUND + number))
        early.append(commit(YOUNG, 50 - AROUND + number))
    kept = catalog.load_table(OLD)
    assert len(kept.inspect.files()) == BATCHES + AROUND
    assert len(kept.metadata.snapshots) < 20
    snapshot = kept.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(kept.io)) < 50, "manifests are merged as we go"
    ours, theirs = statistics.median(late), statistics.median(early)
    assert ours <= 2 * theirs, f"{ours * 1e3:.1f} ms beside {theirs * 1e3:.1f} ms"

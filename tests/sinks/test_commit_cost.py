"""Commits stay cheap: the 2,000th costs at most twice the 50th."""

import statistics
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tidemill.sinks.commit import BatchStamp, commit_files
from tidemill.sinks.tables import ensure_table
from tidemill.sinks.writing import write_files

pytestmark = pytest.mark.slow
BATCHES = 2_000
AROUND = 25


def test_the_2000th_commit_costs_no_more_than_twice_the_50th(tmp_path: Path) -> None:
    """Medians around each, so that one slow disk write does not decide."""
    catalog = SqlCatalog(
        "t", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}/wh"
    )
    schema = pa.schema([("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    table = ensure_table(catalog, "marts.t", schema, "t", "day")
    rows = pa.table({"n": [1], "t": pa.array([0], pa.int64())}).cast(schema)
    seconds = []
    for batch in range(BATCHES + AROUND):
        files = write_files(table.metadata, table.io, rows)
        began = time.perf_counter()
        assert commit_files(catalog, "marts.t", BatchStamp("run", batch, {"s": batch}, 0), files)
        seconds.append(time.perf_counter() - began)
    early, late = (statistics.median(seconds[at - AROUND : at + AROUND]) for at in (50, BATCHES))
    kept = catalog.load_table("marts.t")
    assert len(kept.scan().to_arrow()) == BATCHES + AROUND
    assert len(kept.metadata.snapshots) < 20
    assert late <= 2 * early, f"{late * 1e3:.1f} ms after {early * 1e3:.1f} ms"

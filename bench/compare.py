"""Compare a shadow of many rows with production: rows per second, peak memory. Starts no Spark.

``python -m bench.compare ROWS [KEY]`` prints one JSON object. Each side has so many rows; one in a
hundred differs. With the key ``none`` whole rows are compared, with ``skewed`` one key has nine
tenths of the rows.
"""

import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from bench.data import CACHE
from tidemill.connectors.sinks.iceberg.section import table_pin
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.iceberg.catalog import open_catalog
from tidemill.iceberg.transaction import SteadyTransaction, try_commit
from tidemill.planning.manifest import Manifest, Outputs, Resources, RunIdentity, RunTimes
from tidemill.project import Project, load
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState
from tidemill.types import micros_of, to_micros

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
RUN, FILES = "20260302_000000_aaaa", 40
KEYS = {"key": ["window_start", "show_id"], "none": [], "skewed": ["country"]}
FIELDS = (
    ("window_start", "timestamp"), ("show_id", "long"), ("plays", "long"), ("seconds", "double"),
    ("country", "string"),
)  # fmt: skip
SCHEMA = pa.schema(
    [
        ("window_start", pa.timestamp("us", "UTC")),
        ("show_id", pa.int64()),
        ("plays", pa.int64()),
        ("seconds", pa.float64()),
        ("country", pa.string()),
    ]
)


def rows_of(number: int, rows: int, is_production: bool) -> pa.Table:
    """One file's rows; production has others in one of a hundred, in another order."""
    chosen = np.random.default_rng(number)
    first = number * rows
    ids = np.arange(first, first + rows)
    micros = to_micros(START) + ids // 20_000 * (micros_of(DAY) // 20_000) * 20
    plays = chosen.integers(1, 10_000, rows)
    seconds = chosen.random(rows) * 1e4
    country = np.where(chosen.random(rows) < 0.9, "US", "DE")
    if is_production:
        wrong = ids % 100 == 7
        plays = np.where(wrong, plays + 1, plays)
    table = pa.table(
        {
            "window_start": pa.array(micros, pa.int64()).cast(SCHEMA.field(0).type),
            "show_id": pa.array(ids % 20_000 + 20_000 * (ids // 20_000 % 2), pa.int64()),
            "plays": pa.array(plays, pa.int64()),
            "seconds": pa.array(seconds),
            "country": pa.array(country, pa.string()),
        }
    )
    return table.take(chosen.permutation(rows)) if is_production else table


def project_of(rows: int) -> Project:
    """A project with a finished run of so many rows, and production."""
    folder = CACHE / f"compare-{rows}"
    if not (folder / "ready").exists():
        make(folder, rows)
        (folder / "ready").touch()
    return load(folder / "tidemill.yaml")


def make(folder: Path, rows: int) -> None:
    """Write the project, its two tables and the run's manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plays.sql").write_text("select * from plays", "utf-8")
    sink = {"table": "marts.plays", "time": "window_start", "key": KEYS["key"]}
    text = {
        "streams": {
            "plays": {
                "event_time": "at",
                "archive": {"type": "iceberg", "table": "logs.plays", "ingest_time": "at"},
            }
        },
        "pipelines": {"plays": {"sql": "plays.sql", "sinks": {"output": sink}}},
    }
    (folder / "tidemill.yaml").write_text(yaml.safe_dump(text), "utf-8")
    project = load(folder / "tidemill.yaml")
    catalog = open_catalog(project.loaded)
    for name in (f"marts.plays__{RUN}", "marts.plays"):
        table = ensure_table(catalog, name, SCHEMA, None, "none")
        transaction = SteadyTransaction(table)
        with transaction.update_snapshot().merge_append() as append:
            for number in range(FILES):
                made = rows_of(number, rows // FILES, name == "marts.plays")
                for file in write_files(table.metadata, table.io, made):
                    append.append_data_file(file)
        assert try_commit(transaction)
    columns = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in FIELDS]
    schema = json.dumps({"type": "struct", "fields": columns})
    pin = table_pin(f"marts.plays__{RUN}", schema, "window_start", KEYS["key"])
    span = (to_micros(START), to_micros(START + 4_000 * DAY))
    manifest = Manifest(
        RunIdentity(RUN, "plays", "backfill", 0), RunTimes(span, span), {},
        Outputs({"output": pin}), Resources(1, 1),
    )  # fmt: skip
    RunFolder.of(project.loaded.home, RUN).write_manifest(manifest)
    project.registry.add(RUN, "plays", "backfill")
    project.registry.set_state(RUN, RunState.FINISHED)


def main() -> None:
    """Compare once."""
    rows, key = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "key"
    project = project_of(rows)
    began, used = time.perf_counter(), time.process_time()
    found = project.review.compare(RUN, key=KEYS[key])
    seconds, used = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = found.to_json()
    print(
        json.dumps(
            {
                "rows": 2 * rows,
                "seconds": seconds,
                "peak": peak * 1024,
                "cpu": used,
                "match": told["match"],
                **told["rows"],
            }
        )
    )


if __name__ == "__main__":
    main()

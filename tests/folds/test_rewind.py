"""State that is damaged or gone: a clear error, a way back, and the same rows in the end."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.laws.stopping import run_until
from tidemill import sessions
from tidemill.errors import RunError
from tidemill.runfolder.folder import RunFolder
from tidemill.testing import MemoryLog, assert_same_rows, collect, make_project, replay
from tidemill.types import from_micros, to_micros

pytestmark = pytest.mark.spark
MINUTE = 60_000_000
START = to_micros(datetime(2026, 1, 1, tzinfo=UTC))


def log(seed):
    dice = random.Random(seed)
    rows = []
    for _ in range(1500):
        event = START + dice.randint(0, 180) * MINUTE
        ingest = event + dice.randint(0, 10) * MINUTE
        row = {"key": dice.randint(1, 30), "n": dice.randint(0, 9)}
        rows.append({**row, "event_ts": from_micros(event), "ingest_ts": from_micros(ingest)})
    time = pa.timestamp("us", "UTC")
    schema = [("key", pa.int64()), ("n", pa.int64()), ("event_ts", time), ("ingest_ts", time)]
    return MemoryLog(pa.Table.from_pylist(rows, pa.schema(schema)), lateness=timedelta(minutes=10))


def code(plays):
    agg = {"n": "count", "sum": ("sum", "n")}
    return plays.transform(sessions(key="key", gap="3 min", max_length="40 min", agg=agg))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("harm", [damage, Path.unlink], ids=["damaged", "missing"])
def test_a_harmed_state_stops_the_run_and_a_rewind_mends_it(spark, tmp_path, harm):
    project = make_project(tmp_path, code, {"plays": log(5)}, time="session_start")
    whole = replay(spark, project, [from_micros(START + k * 15 * MINUTE) for k in range(1, 12)])
    plan = project.plan("pipeline", START_TIME, END_TIME, spark=spark)
    first, last = plan.boundaries[0], plan.boundaries[-1]
    inner = [first + k * 12 * MINUTE for k in range(1, 14) if first + k * 12 * MINUTE < last]
    manifest = project.prepare(type(plan)(**{**vars(plan), "boundaries": (first, *inner, last)}))
    folder = RunFolder.of(project.loaded.home, manifest.run)

    harmed = run_until(project, manifest.run, spark, 6)
    state = folder.checkpoint / "folds" / "sessions" / f"{harmed:09d}" / "00001.arrow"
    harm(state)
    with pytest.raises(RunError) as stopped:
        project.resume(manifest.run, spark=spark)
    text = stopped.value.text()
    assert f"sessions/{harmed:09d}/00001.arrow" in text
    assert f"tidemill rewind {manifest.run} --to-batch {harmed - 1}" in text
    found = project.rewind(manifest.run)
    assert found.batch == harmed - 1
    assert harmed in found.repeated
    project.rewind(manifest.run, harmed - 3)
    journal = json.loads((folder.path / "journal.json").read_text())
    assert min(map(int, journal)) == harmed - 2
    result = project.resume(manifest.run, spark=spark)
    assert_same_rows(collect(project, result).output.to_pylist(), whole.output.to_pylist())
    assert result.totals.read == 1500


START_TIME = datetime(1990, 1, 1, tzinfo=UTC)
END_TIME = datetime(2090, 1, 1, tzinfo=UTC)

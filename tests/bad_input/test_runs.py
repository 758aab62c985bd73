"""Bad input that shows only while a run runs: it fails in its own words and can be gone on with."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bad_input.shop import (
    FROM,
    SCHEMA,
    T0,
    TIME,
    TO,
    YAML,
    Shop,
    events,
    expected,
    table,
    untouched,
)
from tidemill.testing import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("lend")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop.make(tmp_path_factory.mktemp("running"))
    made.fill("logs.plays", table(events()), files=8)
    return made.know()


def last_file(shop: Shop) -> Path:
    """The data file with the newest rows."""
    files = shop.catalog.load_table("logs.plays").inspect.files().to_pylist()
    newest = max(files, key=lambda file: file["readable_metrics"]["ingest_ts"]["upper_bound"])
    return Path(newest["file_path"].removeprefix("file://"))


def test_a_file_that_is_damaged_stops_the_run_until_it_is_restored(running: Shop):
    """Its footer is whole, so only reading it tells."""
    file = last_file(running)
    whole = file.read_bytes()
    file.write_bytes(whole[:40] + bytes(60) + whole[100:])
    found = running.backfill("--slice", "30min")
    run = found.fails(
        f"file://{file}: the file cannot be read: ZSTD decompression failed: Data corruption "
        "detected\n  fix: restore the file from a copy; then 'tidemill resume' goes on exactly"
    )
    status = running.project.status(run)
    assert (status.state, status.slices_done, status.slices) == ("failed", 3, 4)
    assert status.error is not None
    assert f"error: {status.error}\n" == found.err[found.err.index("error: ") :]
    committed = running.rows(run)
    assert 0 < len(committed) < len(expected())
    assert all(row in expected() for row in committed)
    assert running.tags() == [f"tidemill-{run}"]
    shown = running.cli("status", run)
    assert status.error in shown.out
    assert shown.out.endswith(f"  next: tidemill resume {run}\n")
    file.write_bytes(whole)
    running.resumes(run)
    assert running.tags() == []


def test_a_run_that_is_over_stays_so(running: Shop):
    done = [record.run for record in running.project.runs() if record.state == "finished"]
    run = done[0] if done else running.backfill("--slice", "1h").out.split()[1]
    with untouched(running):
        running.cli("resume", run).refuses(
            f"the run {run} is finished\n  fix: start a new one with 'tidemill backfill sums'",
            code=1,
        )
        running.cli("cancel", run).refuses(f"the run {run} is finished already", code=1)
        running.cli("pause", run).refuses(f"the run {run} is not running, it is finished", code=1)
        running.cli("status", run[:-1]).refuses(
            f"there is no run '{run[:-1]}'\n  fix: did you mean '{run}'?"
        )


def test_a_table_whose_columns_do_not_fit(running: Shop):
    """The run has failed before its first slice; the table is as it was."""
    running.fill("marts.other", pa.table({"key": pa.array([1], pa.int64())}))
    run = running.backfill("--into", "marts.other").fails(
        "table marts.other: the pipeline's output does not fit the table:\n"
        "PyArrow table contains more columns: n, s, t. Update the schema first (hint, use "
        "union_by_name).\n  fix: evolve the table's columns, or write elsewhere with --into"
    )
    status = running.project.status(run)
    assert (status.state, status.totals.read, status.slices_done) == ("failed", 0, 0)
    found = running.catalog.load_table("marts.other").scan().to_arrow()
    assert found.to_pylist() == [{"key": 1}]
    assert running.cli("cancel", run).code == 0
    assert running.tags() == []


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 2}'], ids=["cut", "list", "empty"])
def test_a_manifest_that_is_damaged(running: Shop, damage):
    project = running.project
    manifest = project.prepare(project.plan("sums", T0, T0.replace(hour=2)))
    path = project.loaded.home / "runs" / manifest.run / "manifest.json"
    whole = path.read_text("utf-8")
    path.write_text(damage, "utf-8")
    for command in ("status", "resume", "cancel"):
        found = running.cli(command, manifest.run)
        assert found.code == 1
        assert found.err.startswith(f"error: {path}: the manifest is damaged: ")
        assert found.err.endswith("\n  fix: restore it from a copy, or start a new backfill\n")
    path.write_text(whole, "utf-8")
    assert running.cli("cancel", manifest.run).code == 0
    assert running.tags() == []


def test_an_empty_range_that_was_asked_for(running: Shop):
    found = running.cli("backfill", "sums", "--from", "2020-01-01T00:00Z", "--to",
                        "2020-01-02T00:00Z", "--allow-empty", "--json")  # fmt: skip
    result = json.loads(found.out)
    assert result["state"] == "finished"
    assert set(result["rows"].values()) == {0}
    assert running.rows(result["run"]) == []


def test_a_home_that_cannot_be_written(running: Shop):
    """Planning needs no place to write; a backfill says which one it lacks, and leaves nothing."""
    homeless = running.variant(("streams:", "home: tidemill.yaml/home\nstreams:"))
    with untouched(running):
        assert homeless.plan().code == 0
        found = homeless.backfill()
    assert (found.code, found.out) == (1, "")
    assert re.sub(r"\d{8}_\d{6}_\w{4}", "RUN", found.err) == (
        f"error: {running.folder}/tidemill.yaml/home: the run cannot be written: "
        "Not a directory\n"
        "  fix: free space or give write permission, or set home: in the YAML\n"
    )


def test_ingest_time_that_goes_backwards(running: Shop):
    rows = events()
    rows[130]["seq"] = 1_000
    running.fill("logs.backwards", table(rows))
    ordered = running.variant(
        ("table: logs.plays", "table: logs.backwards"),
        ("    sinks:", "    sources: {plays: {order: position}}\n    sinks:"),
    )
    run = ordered.backfill("--slice", "1h").fails(
        "stream plays: the ingest time goes backwards in partition 0 at offset 1000\n"
        "  fix: order: position needs a log whose ingest time never falls within a partition; "
        "repair the archive, or leave order: out"
    )
    status = ordered.project.status(run)
    assert (status.state, status.totals.read) == ("failed", 120)
    assert all(row in expected() for row in ordered.rows(run))


def test_times_that_are_missing_or_beyond_the_calendar(running: Shop):
    """Rows leave with their reason, whatever their time; the run goes on without them."""
    wrong = {3: None, 5: 253_402_300_800_000_000, 6: 2**63 - 1, 7: -(2**63) + 1, 8: 2**62}
    rows = table(events())
    times = rows.column("event_ts").cast(pa.int64()).to_pylist()
    for at, value in wrong.items():
        times[at] = value
    rows = rows.set_column(3, SCHEMA.field(3), pa.array(times, pa.int64()).cast(TIME))
    folder = running.folder / "far"
    folder.mkdir()
    pq.write_table(rows, folder / "far.parquet")
    far = running.variant(
        ("type: iceberg\n      table: logs.plays", "type: parquet\n      path: far")
    )
    result = json.loads(far.backfill("--slice", "1h", "--json").out)
    counts = {"in": 240, "on_time": 235, "late": 4, "dead": 1}
    assert {name: result["rows"][name] for name in counts} == counts
    late = far.catalog.load_table(result["tables"]["late"]).scan().to_arrow()
    amounts = [json.loads(row)["amount"] for row in late.column("row").to_pylist()]
    micros = late.column("event_time").cast(pa.int64()).to_pylist()
    assert dict(zip(amounts, micros, strict=True)) == {at: wrong[at] for at in (5, 6, 7, 8)}
    reasons = dict(zip(amounts, late.column("reason").to_pylist(), strict=True))
    assert reasons == {5: "future", 6: "future", 7: "late", 8: "future"}
    dead = far.catalog.load_table(result["tables"]["dead"]).scan().to_arrow().to_pylist()
    assert [(row["offset"], row["reason"]) for row in dead] == [(1, "no event time")]
    kept = [row for row in far.rows(result["run"]) if row["t"] > T0]
    assert_same_rows(kept, [row for row in expected() if row["t"] > T0])


UDF = """\
from pyspark.sql import functions as F
from pyspark.sql.types import LongType


def sums(plays):
    def fee(amount):
        return amount // (amount - NEVER)

    return plays.select(
        F.col("event_ts").alias("t"), "key", F.udf(fee, LongType())("amount").alias("fee")
    )
"""


def test_a_function_that_fails_is_named_with_its_values_and_can_be_mended(tmp_path: Path):
    """Before the first commit the run begins again with the corrected code; later it cannot."""
    shop = Shop.make(tmp_path, YAML.replace(", key: [key, t]", ""), UDF.replace("NEVER", "7"))
    shop.fill("logs.plays", table(events()), files=4)
    run = shop.backfill("--slice", "30min").fails(
        "pipeline sums (pipelines.py:7): fee() failed with ZeroDivisionError: integer division or "
        "modulo by zero, called with amount=7\n"
        "  fix: correct it, then 'tidemill resume RUN' begins again with the corrected code"
    )
    (tmp_path / "pipelines.py").write_text(UDF.replace("amount - NEVER", "amount + 1"), "utf-8")
    outcome = shop.cli("resume", run)
    assert outcome.code == 0, outcome.err
    assert [row["fee"] for row in shop.rows(run)] == [0] * 240

    (tmp_path / "pipelines.py").write_text(UDF.replace("NEVER", "200"), "utf-8")
    again = "'tidemill cancel RUN', then 'tidemill backfill sums --from FROM --to TO'"
    again = again.replace("FROM", FROM).replace("TO", TO)
    run = shop.backfill("--slice", "30min").fails(
        "pipeline sums (pipelines.py:7): fee() failed with ZeroDivisionError: integer division or "
        "modulo by zero, called with amount=200\n"
        "  fix: rows are committed already, and 'tidemill resume RUN' goes on with the same code "
        f"only; when it is corrected, start a new run: {again}"
    )
    (tmp_path / "pipelines.py").write_text(UDF.replace("amount - NEVER", "amount + 1"), "utf-8")
    refused = shop.cli("resume", run)
    assert refused.code == 1
    assert "does something else since the run was planned: " in refused.err
    assert again.replace("RUN", run) in refused.err

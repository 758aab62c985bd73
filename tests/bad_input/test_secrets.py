"""What comes from ${VARIABLES} is neither shown nor kept, whatever goes wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_input.shop import RANGE, YAML, Shop, events, table, untouched
from tests.bad_input.terminal import Outcome

SECRET = "hunter2-of-the-lake"
URI = "catalog: {uri: 'nonsense://anna:${LAKE_KEY}@lake/x'}\n"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", SECRET)


def hides(found: Outcome) -> None:
    """The secret is not shown, and that something is hidden is."""
    assert SECRET not in found.out + found.err
    assert "***" in found.out + found.err


@pytest.mark.parametrize("verbose", [[], ["--verbose"]], ids=["short", "verbose"])
@pytest.mark.parametrize("command", [["plan", "sums", *RANGE], ["doctor", "--quick"]])
def test_a_catalog_that_cannot_be_opened(tmp_path: Path, command, verbose):
    found = Shop.make(tmp_path, URI + YAML).cli(*command, *verbose)
    hides(found)
    assert found.code != 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lateness: 10 min", "lateness: ${LAKE_KEY}"),
        ("type: iceberg", "type: ${LAKE_KEY}"),
        ("table: marts.sums", "table: '${LAKE_KEY}'"),
    ],
)
def test_a_file_that_is_wrong(shop: Shop, old, new):
    with untouched(shop):
        found = shop.variant((old, new)).plan()
    hides(found)
    assert found.code == 2


@pytest.mark.parametrize("shape", [[], ["--json"]], ids=["text", "json"])
def test_a_filter_with_a_secret_in_a_plan(shop: Shop, no_java: None, shape):
    filtered = shop.variant(
        ("    sinks:", "    sources: {plays: {where: \"country = '${LAKE_KEY}'\"}}\n    sinks:")
    ).know()
    with untouched(shop):
        found = filtered.plan(*RANGE, "--allow-empty", *shape)
        assert found.code == 0
        assert SECRET not in found.out + found.err
        if not shape:
            assert "logs.plays where (country = '***')" in found.out


@pytest.mark.spark
def test_a_run_that_fails_in_a_process_of_its_own(tmp_path: Path):
    """Everything said with --verbose, and every file below the project: tables, logs, registry."""
    credentials = "catalog: {s3.secret-access-key: '${LAKE_KEY}', py-io-retries: '${LAKE_KEY}'}\n"
    shop = Shop.make(tmp_path, credentials + YAML)
    shop.fill("logs.plays", table(events()), files=8)
    for file in tmp_path.glob(".tidemill/warehouse/logs/plays/data/*.parquet"):
        whole = file.read_bytes()
        file.write_bytes(whole[:40] + bytes(60) + whole[100:])
    script = Path(sys.executable).with_name("tidemill")
    found = subprocess.run(
        [script, "backfill", "sums", *RANGE, "--slice", "1h", "--json", "--verbose"],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 1
    error = found.stderr[found.stderr.rindex("\nerror: ") :]
    assert "the file cannot be read: ZSTD decompression failed: Data corruption detected" in error
    assert "Traceback" in found.stderr
    assert SECRET not in found.stdout + found.stderr
    (record,) = shop.project.runs()
    assert record.state == "failed"
    status = shop.cli("status", record.run, "--json")
    assert json.loads(status.out)["state"] == "failed"
    assert SECRET not in status.out
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "spark.log" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []

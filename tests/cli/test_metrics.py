"""`metrics` and `diagnose` of a run whose batches are in the registry; nothing else is needed."""

import json

import pytest

from tests.bad_input.terminal import run_cli
from tests.planning.metrics.staged import batch, folding
from tidemill.project import load
from tidemill.runtime.registry import BatchRecord
from tidemill.starter.writing import write_starter


@pytest.fixture
def shop(tmp_path):
    write_starter(tmp_path)
    load(tmp_path / "tidemill.yaml").registry.add("r1", "plays_per_show", "backfill")
    return tmp_path


def record(shop, count, **changes):
    registry = load(shop / "tidemill.yaml").registry
    for number in range(count):
        counted = BatchRecord(number, number, 0, 100_000, 10, 0, 5_000, 0, 2.2)
        registry.record_batch("r1", counted, batch(number, **changes))


def test_metrics_are_a_short_table(shop):
    record(shop, 12)
    told = run_cli("metrics", "r1", cwd=shop).out.splitlines()
    assert told[0] == "run r1  12 batches"
    stages = {line.split("  ")[0].strip(): line.split() for line in told[2:8]}
    assert list(stages) == [
        "reading", "code", "fold sessions", "writing", "committing", "waiting"
    ]  # fmt: skip
    assert stages["reading"][1:4] == ["18.00", "39%", "1,200,120"]
    assert stages["fold sessions"][2:5] == ["4.80", "11%", "1,200,000"]
    (fold,) = (line for line in told if line.startswith("sessions"))
    assert "1: 312,000 rows (1.0 × median)" in fold
    rows = [line.split()[0] for line in told[-8:]]
    assert rows == [str(number) for number in range(4, 12)]


def test_only_the_last_batches_on_request(shop):
    record(shop, 5)
    told = json.loads(run_cli("metrics", "r1", "--last", "2", "--json", cwd=shop).out)
    assert [each["batch"] for each in told["batches"]] == [3, 4]
    assert told["batches"][0]["seconds"]["committing"] == 0.2
    assert told["batches"][0]["lag"] == 2_000_000
    assert told["hours"] == []


def test_without_batches_it_says_so(shop):
    assert "has committed no batch" in run_cli("metrics", "r1", cwd=shop).out
    assert "has committed no batch" in run_cli("diagnose", "r1", cwd=shop).out


def test_a_healthy_run_has_no_findings(shop):
    record(shop, 30)
    assert "nothing wrong was found" in run_cli("diagnose", "r1", cwd=shop).out


def test_a_hot_bucket_is_named_with_what_to_do(shop):
    record(shop, 30, folds={"sessions": folding([3_000, 91_000, 3_000, 3_000])})
    said = run_cli("diagnose", cwd=shop).out.splitlines()
    assert said[1].startswith("• skew: the fold sessions is uneven: bucket 1 of 4 gets 91%")
    assert said[2].startswith("  fix: ")
    (found,) = json.loads(run_cli("diagnose", "--json", cwd=shop).out)["findings"]
    assert (found["cause"], found["figures"]["bucket"]) == ("skew", 1)


def test_a_run_that_is_not_there_is_an_error(shop):
    assert "there is no run 'r2'" in run_cli("metrics", "r2", cwd=shop).err

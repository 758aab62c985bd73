"""Requests that cannot be carried out as asked: said precisely, before anything is written."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bad_input.shop import FACTS, FROM, RANGE, TO, Shop, untouched
from tests.bad_input.terminal import run_cli

pytestmark = pytest.mark.usefixtures("no_java")


@pytest.mark.parametrize("text", ["amount > 3.5", "event_ts >= '2026-01-01T00:00Z'", "Amount > 1"])
def test_a_filter_that_people_write(shop: Shop, text):
    found = shop.plan(*RANGE, "--where", text)
    if text.startswith("Amount"):
        found.refuses(
            "logs.plays: the filter '(Amount > 1)' names the column 'Amount', which is not there\n"
            "  fix: did you mean 'amount'?"
        )
    else:
        assert found.code == 0, found.err


def test_a_range_without_rows_is_refused_before_spark_starts(shop: Shop):
    """The code is not known, and there is no Java: nothing looked at the code."""
    stranger = shop.variant(("sums:\n    entry", "others:\n    entry"))
    late = ("--from", "2026-02-01T00:00Z", "--to", "2026-02-02T00:00Z")
    with untouched(shop):
        stranger.plan(*late, pipeline="others").refuses(
            "pipeline others: no source (plays) has rows with ingest time within a day of "
            "[2026-02-01T00:00Z, 2026-02-02T00:00Z)\n"
            "  fix: check --from and --to and the filters: plays has rows from 2026-01-01T00:00Z "
            "to 2026-01-01T01:59:30Z; --allow-empty runs it all the same"
        )


def test_one_table_for_two_outputs(shop: Shop):
    both = shop.variant(
        ("sums:\n    entry", "sums:\n    sources: {plays: {meta: true}}\n    entry"),
        ("key: [key, t]}", "key: [key, t]}\n      again: {table: marts.again, time: t}"),
    )
    names = ("output", "again")
    both.know(
        replace(
            FACTS,
            schemas={name: FACTS.schemas["output"] for name in names},
            origins={name: FACTS.origins["output"] for name in names},
            margins={name: FACTS.margins["output"] for name in names},
        )
    )
    with untouched(both):
        both.backfill("--into", "marts.both").refuses(
            "--into names one table, the pipeline has 2 outputs\n"
            "  fix: leave --into out: every output gets a shadow of its own"
        )


def test_a_plan_of_an_empty_range_can_be_asked_for(shop: Shop):
    with untouched(shop):
        found = shop.plan("--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z",
                          "--allow-empty")  # fmt: skip
    assert found.code == 0
    assert "plays has no rows in [2020-01-01T00:00Z, 2020-01-02T00:20Z)" in found.out


def test_a_process_says_it_and_leaves_with_its_code(shop: Shop):
    """The console script itself: no trace, nothing on stdout, the code of a wrong request."""
    script = Path(sys.executable).with_name("tidemill")
    found = subprocess.run(
        [script, "plan", "sums", "--from", TO, "--to", FROM, "--config", shop.path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("error: the range is empty: from 2026-01-01T02:00Z ")
    assert "Traceback" not in found.stderr


def test_a_folder_without_a_project(tmp_path: Path):
    run_cli("plan", "sums", *RANGE, cwd=tmp_path).refuses(
        f"there is no tidemill.yaml in {tmp_path}\n"
        "  fix: run 'tidemill init' in an empty folder, or say --config FILE"
    )
    assert not list(tmp_path.iterdir())

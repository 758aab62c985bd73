"""Requests that cannot be carried out as asked: said precisely, before anything is written."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bad_input.shop import FACTS, FROM, RANGE, TO, Shop, untouched
from tests.bad_input.terminal import run_cli

pytestmark = pytest.mark.usefixtures("no_java")

MISUSED = {
    "no zone": (
        ("--from", "2026-01-01T00:00", "--to", TO),
        "Invalid value for '--from': '2026-01-01T00:00' has no zone; say which one: "
        "2026-01-01T00:00Z for UTC, 2026-01-01T00:00+01:00 for a local zone",
    ),
    "not a time": (
        ("--from", "yesterday", "--to", TO),
        "Invalid value for '--from': 'yesterday' is not a time; write an ISO 8601 time with a "
        "zone, for example 2026-01-01T00:00Z",
    ),
    "no start": (("--to", TO), "Missing option '--from'."),
    "a width without its unit": (
        (*RANGE, "--slice", "10"),
        "Invalid value for '--slice': '10' is not a duration; write for example '10 min', '1h', "
        "'250 ms' or 'PT15M'; a number needs its unit",
    ),
    "rows that are no number": (
        (*RANGE, "--slice-rows", "many"),
        "Invalid value for '--slice-rows': 'many' is not a valid integer.",
    ),
}


@pytest.mark.parametrize(("arguments", "text"), MISUSED.values(), ids=list(MISUSED))
def test_an_option_that_cannot_be_read(shop: Shop, arguments, text):
    with untouched(shop):
        shop.plan(*arguments).misused(text)


REFUSED = {
    "from after to": (
        ("--from", TO, "--to", FROM),
        "the range is empty: from 2026-01-01T02:00Z is not before to 2026-01-01T00:00Z\n"
        "  fix: --from must be earlier than --to; the range includes --from, excludes --to",
    ),
    "from equals to": (
        ("--from", FROM, "--to", FROM),
        "the range is empty: from 2026-01-01T00:00Z is not before to 2026-01-01T00:00Z\n"
        "  fix: --from must be earlier than --to; the range includes --from, excludes --to",
    ),
    "input beyond the calendar": (
        ("--from", FROM, "--to", "9999-12-31T23:55Z"),
        "the input for [2026-01-01T00:00Z, the end) does not lie between the years 1 and 9999\n"
        "  fix: ask for a shorter range, or give smaller --warm-up and --look-ahead",
    ),
    "slices too wide": (
        (*RANGE, "--slice", "2h"),
        "a slice of 2h is wider than max_misalignment 1h\n"
        "  fix: use --slice 1h or less, or raise max_misalignment",
    ),
    "slices of no width": (
        (*RANGE, "--slice", "0"),
        "a slice of 0 holds no rows\n  fix: use for example --slice 30min",
    ),
    "slices of no rows": (
        (*RANGE, "--slice-rows", "0"),
        "--slice-rows 0 is not a positive number of rows",
    ),
    "two kinds of slices": (
        (*RANGE, "--slice", "10min", "--slice-rows", "5"),
        "--slice and --slice-rows exclude each other\n  fix: give one of them",
    ),
    "a filter that is none": (
        (*RANGE, "--where", "amount >"),
        "stream plays: the filter 'amount >' is not understood\n"
        "  fix: write for example: country = 'DE' and show_id in (1, 2)",
    ),
    "half a filter that another completes": (
        (*RANGE, "--where", "amount > 1) or (amount < 1"),
        "stream plays: the filter 'amount > 1) or (amount < 1' is not understood\n"
        "  fix: write for example: country = 'DE' and show_id in (1, 2)",
    ),
    "a filter on an unknown column": (
        (*RANGE, "--where", "amont > 5"),
        "logs.plays: the filter '(amont > 5)' names the column 'amont', which is not there\n"
        "  fix: did you mean 'amount'?",
    ),
    "a filter with a value of another type": (
        (*RANGE, "--where", "amount > 'x'"),
        "logs.plays: the filter \"(amount > 'x')\" does not fit: Could not convert x into a long\n"
        "  fix: compare a column with a value of its own type",
    ),
    "a filter on an unknown source": (
        (*RANGE, "--where", "play: amount > 5"),
        "--where names the source 'play'\n  fix: did you mean 'plays'?",
    ),
    "a region where there is none": (
        (*RANGE, "--region", "DE"),
        "stream plays: --region is given, but the archive names no region column\n"
        "  fix: add region: <column> to the stream's archive:, or use --where",
    ),
    "a range without rows": (
        ("--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z"),
        "pipeline sums: no source (plays) has rows with ingest time in [2020-01-01T00:00Z, "
        "2020-01-02T00:20Z)\n"
        "  fix: check --from and --to and the filters: plays has rows from 2026-01-01T00:00Z to "
        "2026-01-01T01:59:30Z; --allow-empty runs it all the same",
    ),
}


FILTERS = {
    "name like '%x'": "like takes one %, at the end: name like 'x%'; for other patterns CODE",
    "name like 'a%b'": "like takes one %, at the end: name like 'x%'; for other patterns CODE",
    "name ilike 'x%'": "a filter compares plain values; CODE",
    "lower(country) = 'de'": "a filter knows no functions; CODE",
    "amount + 1 = 2": "a filter does not calculate; CODE",
    'country = "DE"': "texts stand in single quotes: country = 'DE'",
    "`country` = 'DE'": "write the column's name without backticks",
    "country = null": "compare with null like this: country is null, or is not null",
    "country in ()": "in (…) needs at least one value",
    "amount in (3.5, 4)": "the values of in (…) are all of one kind: (3.5, 4.0)",
    "amount > 1e3": "write the number out, without an exponent",
    "event_ts > timestamp '2026-01-01'": ("write a time as a text alone: at > '2026-01-01T00:00Z'"),
    "country": "compare the column with a value: is_paid = true",
}
IN_CODE = "put it into the pipeline's code: .where(…) takes all that Spark can do"


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_that_is_not_understood(shop: Shop, text):
    with untouched(shop):
        shop.plan(*RANGE, "--where", text).refuses(
            f"stream plays: the filter {text!r} is not understood\n"
            f"  fix: {FILTERS[text].replace('CODE', IN_CODE)}"
        )


MISFITS = {
    "amount = 3.5": (
        "amount is a long: it can never be 3.5",
        "compare with a value that the column can have",
    ),
    "event_ts > '2026-01-01'": (
        "event_ts is a timestamptz: '2026-01-01' has no zone",
        "say which one: 2026-01-01T00:00Z for UTC, 2026-01-01T00:00+01:00 for a local zone",
    ),
    "event_ts > 'yesterday'": (
        "event_ts is a timestamptz: 'yesterday' is not a time",
        "write an ISO 8601 time with a zone, for example 2026-01-01T00:00Z",
    ),
}


@pytest.mark.parametrize("text", MISFITS)
def test_a_filter_whose_value_does_not_fit(shop: Shop, text):
    problem, fix = MISFITS[text]
    with untouched(shop):
        shop.plan(*RANGE, "--where", text).refuses(
            f"logs.plays: the filter '({text})' does not fit: {problem}\n  fix: {fix}"
            if "'" not in text
            else f'logs.plays: the filter "({text})" does not fit: {problem}\n  fix: {fix}'
        )


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


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=list(REFUSED))
def test_a_request_that_cannot_be_planned(shop: Shop, arguments, text):
    with untouched(shop):
        shop.plan(*arguments).refuses(text)
        shop.cli("backfill", "sums", *arguments).refuses(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--rate", 0), "--rate 0 is not a positive number of rows per second"),
        (("--rate", -5), "--rate -5 is not a positive number of rows per second"),
        (("--into", "sums"), "--into sums has no namespace\n  fix: write namespace.table"),
        (("--into", "marts."), "--into marts. has no namespace\n  fix: write namespace.table"),
    ],
)
def test_a_backfill_that_cannot_be_begun(shop: Shop, arguments, text):
    with untouched(shop):
        shop.backfill(*arguments).refuses(text)


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


def test_an_unknown_pipeline(shop: Shop):
    with untouched(shop):
        shop.plan(*RANGE, pipeline="summs").refuses(
            f"{shop.path}: there is no pipeline 'summs'\n  fix: did you mean 'sums'?"
        )


@pytest.mark.parametrize("command", ["status", "resume", "pause", "cancel"])
def test_an_unknown_run(shop: Shop, command):
    with untouched(shop):
        shop.cli(command, "20260101_120000_ab12").refuses(
            "there is no run '20260101_120000_ab12'\n  fix: 'tidemill backfill' starts one"
        )


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

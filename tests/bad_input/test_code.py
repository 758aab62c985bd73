"""Pipelines that cannot keep the promise, or are plainly wrong: refused when they are planned."""

import pytest

from tests.bad_input.workshop import ENTRY, Workshop

ALLOWED = {
    "by_window(plays, F.first('amount'))": "first",
    "row_wise(plays, F.current_timestamp().alias('v'))": "current_timestamp",
}
CLOCK = "row_wise(plays.where(F.col('event_ts') > datetime.now()))"
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("lend")]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"), (*ALLOWED, CLOCK, "None"))


@pytest.mark.parametrize(("made", "name"), ALLOWED.items())
def test_allow_accepts_it_and_the_plan_says_so(workshop: Workshop, made, name):
    _, found = workshop.plan(made, (ENTRY, f"{ENTRY}    allow: [{name}]\n"))
    assert found.code == 0, found.err
    risk = f"  • {name} is allowed by the YAML, and can give other rows in a backfill than live\n"
    assert risk in found.out


def test_code_that_reads_the_clock_is_refused_when_it_is_planned(workshop: Workshop):
    """Every start builds it again: such a run could never begin."""
    _, found = workshop.plan(CLOCK)
    line = workshop.line(CLOCK)
    assert (
        f"(pipelines.py:{line}): its code builds another plan each time it is called: it was: "
        in (found.err)
    )
    assert found.err.endswith(
        "\n  fix: the code is called at every start, and must do the same: instead of the clock or "
        "chance use the event time, or a value of params: and --param\n"
    )


def test_sinks_that_do_not_fit(workshop: Workshop):
    """No time for a stateful pipeline, a key that is not there, an output that is not there."""
    made = "by_window(plays, F.first('amount'))"
    allow = (ENTRY, f"{ENTRY}    allow: [first]\n")
    sink = "{output: {table: marts.NAME, time: t}}"
    for new, text in {
        "{output: {table: marts.NAME}}": (
            "the sink 'output' has no time: and the pipeline is stateful\n"
            "  fix: name the output column the range is about: time: <column>"
        ),
        "{output: {table: marts.NAME, time: t, key: kee}}": (
            "pipeline p0: the sink 'output' names the column 'kee', which its output lacks\n"
            "  fix: did you mean 'key'?"
        ),
        "{output: {table: marts.NAME, time: t}, more: {table: marts.more}}": (
            "pipeline p0: the sink 'more' has no output\n"
            "  fix: return it from the pipeline; allowed: output"
        ),
    }.items():
        workshop.plan(made, allow, (sink, new))[1].refuses(text)


def test_sql_that_is_wrong(workshop: Workshop):
    for sql, text in {
        "selec 1 from plays": (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0) "
            "== SQL == selec 1 from plays ^^^"
        ),
        "select t from plays": (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with "
            "name `t` cannot be resolved. Did you mean one of the following? [`key`, `part`, "
            "`seq`, `amount`, `country`]. SQLSTATE: 42703; line 1 pos 7"
        ),
    }.items():
        pipeline, found = workshop.plan("None", (ENTRY, f"    sql: {sql}\n"))
        found.refuses(f"pipeline {pipeline}: {text}\n  fix: correct the pipeline")


def test_sql_that_depends_on_the_order_of_arrival(workshop: Workshop):
    """The line is that of the SQL, too."""
    select = "select window(event_ts, '1 hour').start as t, key,"
    text = f"sql: |\n      {select}\n        first(amount) as v\n      from plays\n"
    text += "      group by window(event_ts, '1 hour'), key\n"
    pipeline, found = workshop.plan("None", (ENTRY, f"    {text}"))
    assert found.err.startswith(f"error: pipeline {pipeline} (sql:2): the pipeline uses first, ")


def test_what_spark_cannot_stream(workshop: Workshop):
    sql = "    sql: select key, count(*) as n, max(event_ts) as t from plays group by key\n"
    pipeline, found = workshop.plan("None", (ENTRY, sql))
    found.refuses(
        f"pipeline {pipeline}: Spark cannot run the output 'output' as a stream: "
        "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This "
        "output mode is not supported for streaming aggregations without watermark on streaming "
        "DataFrames/DataSets. SQLSTATE: 42KDE\n"
        "  fix: aggregate over a time window of the event time; joins need a bound in event time"
    )

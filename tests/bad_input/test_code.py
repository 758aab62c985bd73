"""Pipelines that cannot keep the promise, or are plainly wrong: refused when they are planned."""

import pytest

from tests.bad_input.shop import YAML, Shop, events, table, untouched
from tests.bad_input.terminal import Outcome

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("lend")]

CODE = """\
from datetime import datetime
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

def by_window(plays, value):
    windows = plays.groupBy(F.window("event_ts", "10 minutes"), "key").agg(value.alias("v"))
    return windows.select(F.col("window.start").alias("t"), "key", "v")


def row_wise(plays, *columns):
    return plays.select(F.col("event_ts").alias("t"), "key", *columns)


def static_join(plays):
    names = SparkSession.active().read.schema("key long, name string").csv(".")
    return row_wise(plays.join(names, "key"), "name")


def open_join(plays):
    left = plays.select("key", F.col("event_ts").alias("t"))
    right = plays.select(F.col("key").alias("k"), F.col("event_ts").alias("u"))
    after = F.expr("key = k and u >= t")
    return left.join(right, after).select("t", "key", "u")


def sessions(plays):
    made = plays.groupBy(F.session_window("event_ts", "5 minutes"), "key").count()
    return made.select(F.col("session_window.start").alias("t"), "key", "count")


def fails(plays):
    rates = {}
    return row_wise(plays, F.lit(rates["EUR"]))
"""
ENTRY = "    entry: pipelines:NAME\n"
# The code of a pipeline, the name it is refused by, what to use instead.
REFUSED = {
    "by_window(plays, F.first('amount'))": (
        "first",
        "use min or max of a column, or first in tidemill.windows(…)",
    ),
    "by_window(plays, F.collect_list('amount'))": (
        "collect_list",
        "use collect in tidemill.windows(…); this list has the order of arrival",
    ),
    "by_window(plays, F.max_by('amount', 'seq'))": (
        "max_by",
        "use max of a struct: max(struct(time, value))",
    ),
    "row_wise(plays, F.current_timestamp().alias('v'))": (
        "current_timestamp",
        "use the event time, or the ingest time: sources: {…: {meta: true}} gives _meta",
    ),
    "row_wise(plays, F.rand().alias('v'))": (
        "rand",
        "derive it from the row: hash(key), xxhash64(…)",
    ),
    "row_wise(plays, F.expr('uuid() as v'))": (
        "uuid",
        "derive it from the row: hash(key), xxhash64(…)",
    ),
    "row_wise(plays.dropDuplicates(['key']))": (
        "deduplicate",
        "use tidemill.deduplicate(key=…, within=…)",
    ),
    "row_wise(plays.dropDuplicatesWithinWatermark(['key']))": (
        "deduplicate_within_watermark",
        "use tidemill.deduplicate(key=…, within=…)",
    ),
    "row_wise(plays).limit(5)": (
        "global_limit, local_limit",
        "rows of a stream have no first; filter by value instead",
    ),
    "row_wise(plays).mapInArrow(lambda rows: rows, 't timestamp, key long')": (
        "map_in_arrow",
        "use column expressions, a UDF or tidemill.fold(…); a batch depends on the cut",
    ),
    "static_join(plays)": (
        "logical_relation",
        "a table read beside the stream is not pinned; name it in tables: of the YAML",
    ),
}
ACTION = (
    "Queries with streaming sources must be executed with writeStream.start(), or from a streaming "
    "table or flow definition within a Spark Declarative Pipeline.\n"
    "  fix: a pipeline only describes what is done with rows that are still to come: it cannot "
    "count(), collect(), show() or cache() them; return a DataFrame, and count with "
    "groupBy(window(…))"
)
# The code of a pipeline, and all that is said after "pipeline NAME: "; those of LINES also say
# the line, which is that of the pipeline where no other is given.
WRONG = {
    "row_wise(plays, 'amont')": (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name "
        "`amont` cannot be resolved. Did you mean one of the following? [`amount`, `key`, "
        "`part`, `seq`, `country`]. SQLSTATE: 42703\n  fix: correct pipelines.py:10"
    ),
    "row_wise(plays, plays.amont)": (
        "its code failed: PySparkAttributeError: [ATTRIBUTE_NOT_SUPPORTED] Attribute `amont` is "
        "not supported. (pipelines.py:LINE)\n"
        "  fix: correct the pipeline; --verbose shows the trace"
    ),
    "row_wise(plays.cache())": ACTION,
    "row_wise(plays.limit(plays.count()))": ACTION,
    "by_window(plays, F.count_distinct('amount'))": (
        "Spark cannot run the output 'output' as a stream: Distinct aggregations are not supported "
        "on streaming DataFrames/Datasets. Consider using approx_count_distinct() instead.\n"
        "  fix: use tidemill.unique_counts(…), which is exact, or F.approx_count_distinct(…)"
    ),
    "row_wise(plays, F.row_number().over(Window.partitionBy('key').orderBy('seq')).alias('r'))": (
        "Spark cannot run the output 'output' as a stream: [NON_TIME_WINDOW_NOT_SUPPORTED_IN_"
        "STREAMING] Window function is not supported in ROW_NUMBER() (as column `r`) on streaming "
        "DataFrames/Datasets. Structured Streaming only supports time-window aggregation using the "
        "WINDOW function. (window specification: (PARTITION BY KEY ORDER BY SEQ ASC NULLS FIRST "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) SQLSTATE: 42KDE\n"
        "  fix: use tidemill.top_n(…) for the first rows of every group, tidemill.deduplicate(…) "
        "for one row of each key, or groupBy(window(…)) with an aggregate"
    ),
    "row_wise(plays).orderBy('t')": (
        "Spark cannot run the output 'output' as a stream: Sorting is not supported on streaming "
        "DataFrames/Datasets, unless it is on aggregated DataFrame/Dataset in Complete output mode"
        "\n  fix: leave the order out and sort when you read the table; tidemill.top_n(…) gives "
        "the first rows of every window"
    ),
    "fails(plays)": (
        "its code failed: KeyError: 'EUR' (pipelines.py:32)\n"
        "  fix: correct the pipeline; --verbose shows the trace"
    ),
    "None": "it returned NoneType, not a DataFrame",
    "{'output': 5}": "its output 'output' is not a DataFrame",
    "plays.sparkSession.range(5)": (
        "its output 'output' does not come from a stream\n"
        "  fix: build outputs from the DataFrames the pipeline is given"
    ),
    "{'big': plays, 'small': plays}": (
        "the output 'big' has no sink\n  fix: add it to sinks:; allowed: output"
    ),
    "plays.select('event_ts', 'key')": (
        "the sink 'output' names the column 't', which its output lacks\n"
        "  fix: allowed: event_ts, key"
    ),
    "plays.select(F.col('key').alias('t'))": (
        "the time 't' of the sink 'output' is a long\n  fix: name a timestamp column"
    ),
}
LINES = {
    "row_wise(plays, 'amont')": 10,
    **dict.fromkeys(("row_wise(plays.cache())", "row_wise(plays.limit(plays.count()))"), 0),
    **dict.fromkeys([made for made in WRONG if "top_n" in WRONG[made]], 0),
    "by_window(plays, F.count_distinct('amount'))": 0,
}
MARGINS = {
    "sessions(plays)": (
        "session_window",
        "use tidemill.sessions(key=…, gap=…, max_length=…) in place of session_window: its "
        "sessions have a longest length",
    ),
    "open_join(plays)": (
        "join (its condition does not say how far after the time of one side that of the other may "
        "lie)",
        "bound the join in event time on both sides, such as a.ts between b.ts - interval 1 hour "
        "and b.ts",
    ),
}
OTHERS = ("row_wise(plays.where(F.col('event_ts') > datetime.now()))",)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """One project with a pipeline for every piece of code above, named p0, p1, …"""
    code, text = CODE, YAML[: YAML.index("pipelines:")] + "pipelines:\n"
    for number, made in enumerate((*REFUSED, *WRONG, *MARGINS, *OTHERS)):
        code += f"\n\ndef p{number}(plays):\n    return {made}\n"
        text += (
            f"  p{number}:\n    entry: pipelines:p{number}\n"
            f"    sinks: {{output: {{table: marts.p{number}, time: t}}}}\n"
        )
    made = Shop.make(tmp_path_factory.mktemp("workshop"), text, code)
    made.fill("logs.plays", table(events(2)))
    return made


def plan_of(workshop: Shop, made: str, *edits: tuple[str, str]) -> tuple[str, Outcome]:
    """The pipeline with this code: its name, and how planning it ends."""
    name = f"p{[*REFUSED, *WRONG, *MARGINS, *OTHERS].index(made)}"
    named = [(old.replace("NAME", name), new.replace("NAME", name)) for old, new in edits]
    project = workshop.variant(*named)
    with untouched(workshop):
        return name, project.plan(pipeline=name)


@pytest.mark.parametrize("made", REFUSED)
def test_what_depends_on_arrival_the_clock_or_the_cut(workshop: Shop, made):
    names, advice = REFUSED[made]
    pipeline, found = plan_of(workshop, made)
    found.refuses(
        f"pipeline {pipeline}: the pipeline uses {names}, which can give other rows in a backfill "
        f"than live\n  fix: {names.split(',')[0]}: {advice}; or accept it: allow: [{names}]"
    )


@pytest.mark.parametrize("made", [*REFUSED][:4])
def test_allow_accepts_it_and_the_plan_says_so(workshop: Shop, made):
    name, _ = REFUSED[made]
    _, found = plan_of(workshop, made, (ENTRY, f"{ENTRY}    allow: [{name}]\n"))
    assert found.code == 0, found.err
    risk = f"  • {name} is allowed by the YAML, and can give other rows in a backfill than live\n"
    assert risk in found.out


@pytest.mark.parametrize("made", WRONG)
def test_code_that_is_wrong(workshop: Shop, made):
    pipeline, found = plan_of(workshop, made)
    lines = (workshop.folder / "pipelines.py").read_text("utf-8").splitlines()
    line = 1 + lines.index(f"    return {made}")
    place = f" (pipelines.py:{LINES[made] or line})" if made in LINES else ""
    found.refuses(f"pipeline {pipeline}{place}: {WRONG[made].replace('LINE', str(line))}")


def test_code_that_reads_the_clock_is_refused_when_it_is_planned(workshop: Shop):
    """Every start builds it again: such a run could never begin."""
    made = "row_wise(plays.where(F.col('event_ts') > datetime.now()))"
    _, found = plan_of(workshop, made)
    lines = (workshop.folder / "pipelines.py").read_text("utf-8").splitlines()
    line = 1 + lines.index(f"    return {made}")
    assert (
        f"(pipelines.py:{line}): its code builds another plan each time it is called: it was: "
        in (found.err)
    )
    assert found.err.endswith(
        "\n  fix: the code is called at every start, and must do the same: instead of the clock or "
        "chance use the event time, or a value of params: and --param\n"
    )


@pytest.mark.parametrize("made", MARGINS)
def test_what_reaches_over_the_range_must_say_how_far(workshop: Shop, made):
    _, found = plan_of(workshop, made)
    unknown, advice = MARGINS[made]
    found.refuses(
        f"how much input [from, to) needs is not known for: {unknown}\n"
        "  fix: say warm_up: and look_ahead: in the pipeline's YAML (or --warm-up and "
        f"--look-ahead); 0 means none; or {advice}"
    )


def test_sinks_that_do_not_fit(workshop: Shop):
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
        plan_of(workshop, made, allow, (sink, new))[1].refuses(text)


def test_sql_that_is_wrong(workshop: Shop):
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
        pipeline, found = plan_of(workshop, "None", (ENTRY, f"    sql: {sql}\n"))
        found.refuses(f"pipeline {pipeline}: {text}\n  fix: correct the pipeline")


def test_what_spark_cannot_stream(workshop: Shop):
    sql = "    sql: select key, count(*) as n, max(event_ts) as t from plays group by key\n"
    pipeline, found = plan_of(workshop, "None", (ENTRY, sql))
    found.refuses(
        f"pipeline {pipeline}: Spark cannot run the output 'output' as a stream: "
        "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This "
        "output mode is not supported for streaming aggregations without watermark on streaming "
        "DataFrames/DataSets. SQLSTATE: 42KDE\n"
        "  fix: aggregate over a time window of the event time; joins need a bound in event time"
    )

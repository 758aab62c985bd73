"""Expressions that give another row at another time or place are refused by name, seen by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.pipeline import Pipeline
from tidemill.planning.code.allowlist import find_refusals
from tidemill.planning.code.clocks import typed_specials
from tidemill.runtime.code.analyst import analyse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

UTC = pa.timestamp("us", "UTC")
PLAYS = pa.schema([("ts", UTC), ("k", pa.int64()), ("s", pa.string())])

SPECIAL = {
    "now": (
        *("timestamp'now'", "TIMESTAMP ' NOW '", "timestamp_ltz'now'", 'timestamp_ntz"now"'),
        *("date'now'", "to_timestamp('now')", "cast('now' as timestamp)", "'now'::timestamp_ntz"),
        *("try_cast('now' as date)", "timestamp('now')", "try_to_timestamp('now')", "ts < 'now'"),
        *("cast(concat('n', 'ow') as timestamp)", "hour('now')", "date_format('now', 'yyyy')"),
    ),
    "today": ("date'today'", "timestamp'today'", "to_date('today')", "date_add('today', 1)"),
    "tomorrow": ("to_date('Tomorrow')", "try_to_date('tomorrow')", "timestamp_ntz'tomorrow'"),
    "yesterday": ("date('yesterday')", "to_timestamp_ntz('yesterday')", "ts > date'yesterday'"),
}
CLOCKS = {
    "current_date()": "current_date",
    "curdate()": "current_date",
    "current_time()": "current_time",
    "localtime()": "current_time",
    "current_timestamp()": "current_timestamp",
    "unix_timestamp()": "current_timestamp",
    "to_unix_timestamp(now())": "now",
    "localtimestamp()": "local_timestamp",
}
CHANCES = {
    "rand()": "rand",
    "random()": "rand",
    "randn(1)": "randn",
    "randstr(3)": "rand_str",
    "uniform(0, 1)": "uniform",
    "uuid()": "uuid",
    "shuffle(array(1, 2))": "shuffle",
    "aes_encrypt(s, '0000111122223333')": "aes_encrypt",
    "reflect('java.lang.Math', 'random')": "call_method_via_reflection",
    "java_method('java.lang.System', 'nanoTime')": "call_method_via_reflection",
}
PLACES = {
    "current_timezone()": "current_time_zone",
    "current_user()": "current_user",
    "session_user()": "current_user",
    "user()": "current_user",
    "current_catalog()": "current_catalog",
    "current_database()": "current_database",
    "current_schema()": "current_database",
    "current_path()": "current_path",
    "version()": "spark_version",
    "input_file_name()": "input_file_name",
    "input_file_block_start()": "input_file_block_start",
    "spark_partition_id()": "spark_partition_id",
}
ALLOWED = (
    *("timestamp'epoch'", "date'epoch'", "cast('epoch' as timestamp)", "date'2026-01-01'"),
    *("timestamp'2026-01-01 00:00:00'", "concat('now', s)", "s = 'today'", "'timestamp''now'''"),
    *(
        "try_cast(s as timestamp)",
        "to_date(s)",
        "try_to_timestamp(s)",
        "to_timestamp('2026-01-01')",
    ),
    *("from_json('{\"a\": \"now\"}', 'a timestamp')", "from_csv('now', 'a timestamp')"),
    *("try_to_timestamp('now', 'yyyy')", "typeof(k)", "schema_of_json('{}')", "unix_timestamp(ts)"),
    *("try_add(k, 1)", "hash(k)", "xxhash64(s)", "aes_encrypt(s, '0000111122223333', 'ECB')"),
    "aes_encrypt(s, '0000111122223333', 'CBC', 'DEFAULT', unhex(md5(s)))",
)
CASES = [
    *((text, name) for name, texts in SPECIAL.items() for text in texts),
    *CLOCKS.items(),
    *CHANCES.items(),
    *PLACES.items(),
    *((text, None) for text in ALLOWED),
]


def _over_plays(code: Callable[[DataFrame], DataFrame]) -> Pipeline:
    return Pipeline(lambda plays: code(plays), ("plays",))  # noqa: PLW0108 (the parameter's name)


@pytest.fixture
def refused(spark: SparkSession) -> Callable[[Callable[[DataFrame], DataFrame]], set[str]]:
    def find(code: Callable[[DataFrame], DataFrame]) -> set[str]:
        facts = analyse(spark, _over_plays(code), {"plays": PLAYS}, {"plays": "ts"}, set())
        found = find_refusals(facts.usages)
        assert all("not known" not in advice for advice in found.values())
        return set(found)

    return find


@pytest.mark.spark
@pytest.mark.parametrize(("text", "name"), CASES)
def test_an_expression_is_refused_by_name_or_allowed(refused, text, name):
    assert refused(lambda plays: plays.select("ts", F.expr(text).alias("x"))) == (
        set() if name is None else {name}
    )


@pytest.mark.spark
def test_no_way_of_writing_it_gets_past(refused):
    def view(plays: DataFrame, text: str) -> DataFrame:
        plays.createOrReplaceTempView("plays")
        return plays.sparkSession.sql(text)

    now, today, tried = {"now"}, {"today"}, "try_reflect('java.lang.Math', 'random')"
    assert "try_reflect" in refused(lambda plays: plays.select("ts", F.expr(tried)))
    assert refused(lambda plays: plays.where("ts < timestamp'now'")) == now
    assert refused(lambda plays: plays.where(F.col("ts") < "now")) == now
    assert refused(lambda plays: plays.select("ts", F.to_timestamp(F.lit("now")))) == now
    assert refused(lambda plays: plays.select("ts", F.lit("today").cast("date"))) == today
    assert refused(lambda plays: view(plays, "select *, date'today' from plays")) == today
    inline = "select * from plays join (values (1L, date'today')) as t(k, day) using (k)"
    assert refused(lambda plays: view(plays, inline)) == today
    named = "with x as (select ts, 'now'::timestamp as t from plays) select * from x"
    assert refused(lambda plays: view(plays, named)) == now
    fair = "select * from plays join (values (1L, date'2026-01-01')) as t(k, day) using (k)"
    assert refused(lambda plays: view(plays, fair)) == set()


@pytest.mark.spark
def test_a_function_that_says_it_is_not_deterministic_is_refused(refused):
    lot = F.udf(lambda value: value, "bigint").asNondeterministic()
    assert refused(lambda plays: plays.select("ts", lot("k"))) == {"nondeterministic_python_udf"}


def test_typed_literals_are_found_in_a_text():
    text = "a > DATE 'Today' and b < timestamp_ntz\"now\" or c = 'tomorrow' or date'2026-01-01' < d"
    assert list(typed_specials(text)) == ["today", "now"]
    assert list(typed_specials("update'now', mydate 'now'")) == []

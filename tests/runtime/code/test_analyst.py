"""What code does is the same text whenever it is built."""

import pyarrow as pa

from tidemill.pipeline import Pipeline
from tidemill.runtime.code.analyst import analyse

PLAYS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64())])


def behaviour(spark, sql):
    def code(plays):
        plays.createOrReplaceTempView("plays")
        return plays.sparkSession.sql(sql)

    pipeline = Pipeline(code, ("plays",))
    return analyse(spark, pipeline, {"plays": PLAYS}, {"plays": "ts"}, set()).behaviour


def test_code_with_ctes_does_the_same_when_it_is_built_again_in_one_session(spark):
    """Spark counts the CTEs of a session; their numbers say nothing about rows."""
    sql = (
        "with a as (select *, k + 1 as n from plays), b as (select * from a where n > {}) "
        "select b.k, b.ts, a.n from b join a on a.k = b.k and a.ts = b.ts"
    )
    first, again, other = (behaviour(spark, sql.format(limit)) for limit in (2, 2, 3))
    assert first == again
    assert first != other

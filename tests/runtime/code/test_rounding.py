"""Sums of floating point numbers that Spark computes are found by Spark's own types."""

import pyarrow as pa

from tidemill.pipeline import Pipeline
from tidemill.runtime.code.analyst import analyse

UTC = pa.timestamp("us", "UTC")
PLAYS = pa.schema(
    [
        *(("ts", UTC), ("small", pa.int32()), ("whole", pa.int64())),
        *(("x", pa.float64()), ("f", pa.float32()), ("price", pa.decimal128(10, 2))),
        ("nested", pa.struct([("x", pa.float64())])),
    ]
)
ROUNDED = [
    *("sum(x)", "avg(x)", "sum(f)", "avg(whole)", "sum(nested.x)", "sum(price * x)"),
    *("try_sum(x)", "try_avg(whole)", "sum(whole / small)", "sum(sqrt(small))", "stddev_samp(x)"),
    *("sum(CAST(price AS DOUBLE))", "corr(x, f)", "var_pop(whole)"),
]
EXACT = [
    *("sum(whole)", "avg(small)", "sum(price)", "avg(price)", "max(x)", "min(f)", "count(x)"),
    *("sum(CAST(x AS DECIMAL(18,4)))", "sum(floor(x))", "sum(if(x > 1.5, 1, 0))"),
    *("sum(whole) / count(whole)",),
]


def test_sums_of_floating_point_numbers_are_found_and_exact_ones_are_not(spark):
    def code(plays):
        plays.createOrReplaceTempView("plays")
        chosen = ", ".join(f"{text} as c{n}" for n, text in enumerate([*ROUNDED, *EXACT]))
        return plays.sparkSession.sql(
            f"select window.start as s, {chosen} from plays group by window(ts, '10 minutes')"
        )

    facts = analyse(spark, Pipeline(code, ("plays",)), {"plays": PLAYS}, {"plays": "ts"}, set())
    found = {text.lower().replace("plays.", "") for text in facts.rounded}
    assert len(found) == len(ROUNDED), found
    for text in ROUNDED[:4]:
        assert text in found

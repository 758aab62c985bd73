"""The notations for schemas: what each means, and what is said about the unreadable."""

import polars as pl
import pyarrow as pa
import pytest

from tidemill.errors import PlanError
from tidemill.folds.base import TIME
from tidemill.folds.own.schemas import parse_schema

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("name", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("is_new", pa.bool_()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", TIME),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("place", pa.struct([("lat", pa.float64()), ("all", pa.list_(pa.field("element", TIME)))])),
    ]
)
NAMES = {
    "id": "long",
    "n": "INT",
    "name": "string",
    "price": "decimal(12, 2)",
    "is_new": "boolean",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "tags": "array<string>",
    "place": "struct<lat: double, all array<timestamp>>",
}
POLARS = pl.Schema(
    {
        "id": pl.Int64,
        "n": pl.Int32,
        "name": pl.String,
        "price": pl.Decimal(12, 2),
        "is_new": pl.Boolean,
        "raw": pl.Binary,
        "day": pl.Date,
        "at": pl.Datetime("ms", "Europe/Berlin"),
        "local": pl.Datetime("us"),
        "tags": pl.List(pl.String),
        "place": pl.Struct({"lat": pl.Float64, "all": pl.List(pl.Datetime("us", "UTC"))}),
    }
)


@pytest.mark.parametrize(
    "given",
    [
        NAMES,
        ", ".join(f"`{name}` {kind}" for name, kind in NAMES.items()),
        ",".join(f"{name}: {kind} NOT NULL" for name, kind in NAMES.items()),
        SCHEMA,
        dict(zip(SCHEMA.names, SCHEMA.types, strict=True)),
        POLARS,
    ],
    ids=["names", "ddl", "ddl with colons", "arrow", "arrow types", "polars"],
)
def test_all_notations_mean_the_same(given):
    assert parse_schema(given, "fold", "output") == SCHEMA


def test_a_schema_of_spark_is_read_too():
    from pyspark.sql.pandas.types import from_arrow_schema

    spark = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=True)
    assert parse_schema(spark, "fold", "output") == SCHEMA


def test_short_decimals_are_those_of_spark():
    found = parse_schema("a decimal, b decimal(7), c numeric(38,38)", "fold", "output")
    assert found.types == [pa.decimal128(10, 0), pa.decimal128(7, 0), pa.decimal128(38, 38)]


@pytest.mark.parametrize(
    ("given", "message", "fix"),
    [
        ({"a": "strng"}, "the output column 'a': 'strng' is not a type", "did you mean 'string'?"),
        ({"a": "array<long"}, "column 'a': expected '>', found the end", "write"),
        ({"a": "long long"}, "column 'a': 'long' after the type", "write"),
        ({"a": "decimal(2,5)"}, "column 'a': decimal(2,5) cannot be", "1 to 38 digits"),
        ({"a": "decimal(1,2,3)"}, "column 'a': expected ')', found ','", "scale"),
        ({"a": "decimal(x)"}, "column 'a': expected a number, found 'x'", "scale"),
        ({"a": "decimal(1"}, "column 'a': expected ')', found the end", "write"),
        ({"a": ""}, "column 'a': expected a type, found the end", "string"),
        ({"a": "`"}, "column 'a': cannot read the columns from '`' on", "backticks"),
        ({"a": "struct<>"}, "column 'a': expected a column's name, found '>'", "write"),
        ({"a": pa.uint32()}, "column 'a': a fold has no columns of type uint32", "long"),
        ({"a": pl.UInt8}, "column 'a': a fold has no columns of type uint8", "long"),
        ({"a": pl.Int128}, "column 'a': Int128 has no form in Arrow", "another"),
        ({"a": 3}, "column 'a': 3 is not a type", "write one of"),
        ({3: "long"}, "column 3: it has no name", "string"),
        ("a long, a int", "column 'a': the name is taken", "of its own"),
        (
            "a long b int",
            "'a long b int': column 'a': expected a comma or the end, found 'b'",
            "write",
        ),
        ("", "the output '': no columns are written", "write"),
        ({}, "the output has no column", "name one"),
        ({"a": "map<string, long>"}, "a fold has no columns of type map", "use one of"),
        (3, "the output is a int", '{"user_id": "long"'),
    ],
)
def test_what_cannot_be_read_is_named(given, message, fix):
    with pytest.raises(PlanError) as refused:
        parse_schema(given, "fold", "output")
    assert message in refused.value.message
    assert fix in refused.value.fix
    assert refused.value.where == "fold"

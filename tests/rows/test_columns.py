import pyarrow as pa
import pytest

from tests.manifests import make_pin
from tidemill.rows.columns import (
    MARK,
    META,
    meta_type,
    needed_columns,
    pipeline_schema,
    spark_schema,
    spark_type,
    stream_schema,
)

PIN = make_pin("plays", None, "event", "ingest", columns=("k", "event"))
UTC = pa.timestamp("us", "UTC")
ARCHIVE = pa.schema(
    [("ingest", UTC), ("k", pa.int64()), ("event", pa.timestamp("ns")), ("_raw", pa.binary()),
     ("v", pa.large_string()), ("_reason", pa.string())]
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        (pa.int8(), pa.int8()),
        (pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.date64(), pa.date32()),
        (pa.time32("ms"), pa.time64("us")),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.uuid(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("ms", "Asia/Tokyo"), UTC),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.large_list(pa.large_string()), pa.list_(pa.field("element", pa.string()))),
        (pa.map_(pa.large_string(), pa.timestamp("ns")), pa.map_(pa.string(), pa.timestamp("us"))),
        (
            pa.struct([("a", pa.list_(pa.uuid())), ("b", pa.date32())]),
            pa.struct([("a", pa.list_(pa.field("element", pa.string()))), ("b", pa.date32())]),
        ),
    ],
    ids=str,
)
def test_types_as_spark_has_them(kind, spark):
    assert spark_type(kind) == spark
    assert spark_type(spark) == spark
    column = pa.field("c", kind, nullable=False)
    assert spark_schema(pa.schema([column])).field("c").nullable


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_the_largest_number_without_a_sign_is_the_same_number_in_spark_s_type(bits):
    column = pa.array([2**bits - 1, None], getattr(pa, f"uint{bits}")())
    assert column.cast(spark_type(column.type)).to_pylist() == [2**bits - 1, None]


def test_the_columns_to_read_place_and_judge_a_row_too():
    assert needed_columns(PIN, ARCHIVE.names) == ("k", "event", "ingest", "_reason", "_raw")
    placed = make_pin("s", columns=(META, "k"), partition="p", offset="k")
    assert needed_columns(placed, []) == ("k", "e", "i", "p")


def test_pipeline_code_sees_all_but_the_archive_s_notes():
    seen = pipeline_schema(ARCHIVE, "event", meta=False)
    assert seen.names == ["ingest", "k", "event", "v"]
    assert seen.field("event").type == UTC
    with_meta = pipeline_schema(ARCHIVE, "event", meta=True)
    assert with_meta.names == [*seen.names, META]
    assert with_meta.field(META).type == meta_type()


def test_spark_reads_what_is_used_and_the_mark():
    assert stream_schema(PIN, ARCHIVE).names == ["k", "event", MARK]

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import ConfigError
from tidemill.records.decoding import Format, arrow_schema, decode
from tidemill.rows.columns import EXTRA, RAW, REASON

NOTES = (RAW, REASON, EXTRA)
PLACE = {"type": "record", "name": "place", "fields": [{"name": "country", "type": "string"}]}


def record(**fields):
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "play", "namespace": "tv", "fields": listed}


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


SCHEMA = record(
    flag="boolean",
    small="int",
    big=["null", "long"],
    ratio="float",
    score=["double", "null"],
    name="string",
    data="bytes",
    code={"type": "fixed", "name": "code", "size": 4},
    color={"type": "enum", "name": "color", "symbols": ["RED", "GREEN"]},
    day=logical("int", "date"),
    millis=logical("long", "timestamp-millis"),
    micros=["null", logical("long", "timestamp-micros")],
    local=logical("long", "local-timestamp-micros"),
    price=logical("bytes", "decimal", precision=10, scale=2),
    fee=["null", logical("bytes", "decimal")],
    exact={"type": "fixed", "name": "exact", "size": 6, "logicalType": "decimal", "precision": 9},
    id=logical("string", "uuid"),
    clock=logical("int", "time-millis"),
    tags={"type": "array", "items": ["null", "string"]},
    times={"type": "array", "items": logical("long", "timestamp-millis")},
    counts={"type": "map", "values": "long"},
    place=["null", PLACE],
    other="tv.place",
    wide=["null", "int", "long"],
)
FORM = Format("avro", "", avro=json.dumps(SCHEMA))
ROW = {
    "flag": True,
    "small": -7,
    "big": None,
    "ratio": 1.5,
    "score": 2.5,
    "name": "é",
    "data": b"\xff\0",
    "code": b"abcd",
    "color": "GREEN",
    "day": date(2026, 3, 1),
    "millis": datetime(2026, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC),
    "micros": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "local": datetime.fromisoformat("2026-03-01T12:30:15.000001"),
    "price": Decimal("-12.50"),
    "fee": None,
    "exact": Decimal("999999999"),
    "id": "8c5fd8ba-0a2e-4e3c-9d3c-3d6f2f0d6d3a",
    "clock": 5,
    "tags": ["a", None],
    "times": [datetime(2026, 3, 1, tzinfo=UTC)],
    "counts": {"b": 1, "a": 2},
    "place": {"country": "de"},
    "other": {"country": ""},
    "wide": 2**40,
}
EXPECTED = {**ROW, "counts": [("b", 1), ("a", 2)]}


def encoded(schema, row):
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def value_of(row):
    schema = json.loads(json.dumps(SCHEMA))
    for field in schema["fields"]:
        if field["name"] in ("id", "clock"):
            field["type"] = field["type"]["type"]
    return encoded(schema, row)


VALUE = value_of(ROW)


def decoded(form, values):
    batch = decode(form, [None] * len(values), values)
    batch.validate(full=True)
    assert batch.schema.names == [*arrow_schema(form).names, *NOTES]
    return batch.to_pylist()


def one(form, value):
    (row,) = decoded(form, [value])
    raw, reason, extra = (row.pop(name) for name in NOTES)
    assert extra is None
    assert raw == (None if reason is None else value)
    if reason is not None:
        assert set(row.values()) == {None}
    return row, reason


def test_every_type():
    assert one(FORM, VALUE) == (EXPECTED, None)
    assert arrow_schema(FORM).field("exact").type == pa.decimal128(9, 0)
    assert arrow_schema(FORM).field("fee").type == pa.binary()  # a decimal must say its precision
    assert arrow_schema(FORM).field("tags").type == pa.list_(pa.field("element", pa.string()))
    assert arrow_schema(FORM).field("clock").type == pa.int32()
    assert arrow_schema(FORM).field("local").type == pa.timestamp("us")


def simple(kind, **options):
    return Format("avro", "", avro=json.dumps(record(c=kind)), **options)


DEAD = [
    (simple("long"), b"", "not Avro: malformed or cut off"),
    (simple("long"), None, "no value"),
    (simple("long"), b"\x02\x02\x02", "not Avro: 2 bytes after the record"),
    (simple("int"), b"\x80\x80\x80\x80\x10", "c: number out of range for int"),
    (simple("string"), b"\x04\xff\xff", "not Avro: text is not UTF-8"),
    (simple("string"), b"\x05abc", "not Avro: malformed or cut off"),
    (simple("boolean"), b"", "not Avro: malformed or cut off"),
    (simple(["null", "long"]), b"\x08", "not Avro: malformed or cut off"),
    (
        simple(logical("long", "timestamp-millis")),
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        "c: time outside the years 1 to 9999",
    ),
    (
        simple(logical("int", "date")),
        b"\xfe\xff\xff\xff\x0f",
        "c: date outside the years 1 to 9999",
    ),
    (
        simple(logical("bytes", "decimal", precision=3, scale=1)),
        b"\x04\x7f\xff",
        "c: number does not fit decimal(3,1)",
    ),
    (
        simple({"type": "array", "items": logical("int", "date")}),
        b"\x04\x00\xfe\xff\xff\xff\x0f\x00",
        "c[1]: date outside the years 1 to 9999",
    ),
    (
        simple({"type": "map", "values": "int"}),
        b"\x02\x02k\x80\x80\x80\x80\x10\x00",
        "c.k: number out of range for int",
    ),
]


@pytest.mark.parametrize(("form", "value", "reason"), DEAD)
def test_record_that_cannot_be_decoded(form, value, reason):
    assert one(form, value)[1] == reason
    good = decoded(form, [value, value])
    assert [row[REASON] for row in good] == [reason, reason]


def test_framed():
    form = Format("avro", "", avro=json.dumps(SCHEMA), framed=True)
    assert one(form, b"\0\0\0\1\2" + VALUE) == (EXPECTED, None)
    for value in (VALUE, b"\0\0\0\1", b""):
        assert one(form, value)[1].startswith("no frame: ")
    assert one(FORM, b"\0\0\0\1\2" + VALUE)[1] is not None


@pytest.mark.parametrize("length", range(len(VALUE)))
def test_cut_off(length):
    assert one(FORM, VALUE[:length])[1] is not None


ROWS = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**63), 2**63 - 1),
        "b": st.none() | st.text(),
        "c": st.decimals(-999, 999, places=2, allow_nan=False),
        "d": st.datetimes(timezones=st.just(UTC)),
        "e": st.lists(st.floats(allow_nan=False)),
        "f": st.dates(),
    }
)
ROWS_FORM = Format(
    "avro",
    "",
    avro=json.dumps(
        record(
            a="long",
            b=["null", "string"],
            c=logical("bytes", "decimal", precision=5, scale=2),
            d=logical("long", "timestamp-micros"),
            e={"type": "array", "items": "double"},
            f=logical("int", "date"),
        )
    ),
)


@given(st.lists(ROWS, max_size=5))
def test_what_fastavro_writes_is_read_back(rows):
    values = [encoded(json.loads(ROWS_FORM.avro), row) for row in rows]
    assert decoded(ROWS_FORM, values) == [{**row, **dict.fromkeys(NOTES)} for row in rows]


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from([FORM, ROWS_FORM]))
def test_garbage_is_never_an_error_and_knows_no_neighbours(values, form):
    values = [VALUE if form is FORM else values[0] if values else b"", *values]
    rows = decoded(form, values)
    again = [decoded(form, [value])[0] for value in values]
    assert repr(rows) == repr(again)  # NaN is not equal to itself


@settings(max_examples=300)
@given(st.integers(0, len(VALUE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_never_an_error(place, byte):
    one(FORM, VALUE[:place] + bytes([byte]) + VALUE[place + 1 :])


WRONG = [
    ("{", "the Avro schema is not JSON"),
    ('"long"', "the Avro schema is not a record's"),
    ('{"type": "record", "name": "r"}', "the record has no fields"),
    (json.dumps(record(c="lng")), "field 'c' of the Avro schema: 'lng' is not an Avro type"),
    (json.dumps(record(c="null")), "field 'c' of the Avro schema: null alone is no column"),
    (json.dumps(record(c=["long", "string"])), "a union of several types is no column"),
    (json.dumps(record(c={"type": "fixed", "name": "f"})), "a size of at least one byte"),
    (json.dumps(record(c=7)), "field 'c' of the Avro schema: 7 is not an Avro type"),
    (json.dumps(record(c={"type": "array"})), "null is not an Avro type"),
    (json.dumps(record(c=["null", "play"])), "play holds itself"),
    (json.dumps(record(_raw="bytes")), "column '_raw': the name is Tidemill's own"),
    (json.dumps(record(c="long", C="long")), "is not a field with its own name"),
    (
        json.dumps(record(c=logical("bytes", "decimal", precision=39))),
        "a decimal of 39 digits",
    ),
]


@pytest.mark.parametrize(("schema", "message"), WRONG)
def test_schema_that_gives_no_columns_is_refused(schema, message):
    with pytest.raises(ConfigError) as caught:
        Format("avro", "", avro=schema)
    assert message in caught.value.text()
    assert caught.value.fix


def test_schema_that_only_the_parser_refuses():
    enum = {"type": "enum", "name": "e", "symbols": ["a b"]}
    with pytest.raises(ConfigError, match="the Avro schema cannot be used"):
        decode(simple(enum), [None], [b"\0"])

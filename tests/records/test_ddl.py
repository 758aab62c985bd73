import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import ConfigError
from tidemill.records.ddl import parse_columns, type_text, write_columns


def array(kind):
    return pa.list_(pa.field("element", kind))


UTC = pa.timestamp("us", "UTC")
TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ltz": UTC,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "decimal(5)": pa.decimal128(5, 0),
    "DECIMAL( 38 , 38 )": pa.decimal128(38, 38),
    "dec(4,2)": pa.decimal128(4, 2),
    "numeric(4,2)": pa.decimal128(4, 2),
    "array<string>": array(pa.string()),
    "ARRAY < Array<BigInt> >": array(array(pa.int64())),
    "map<string, array<double>>": pa.map_(pa.string(), array(pa.float64())),
    "struct<a: long, `b c` struct<d: date NOT NULL COMMENT 'x'>>": pa.struct(
        [("a", pa.int64()), ("b c", pa.struct([("d", pa.date32())]))]
    ),
}
MANY = (
    "account_id BIGINT NOT NULL, `show id` long comment 'it''s \\' \"this\", really', event_ts "
    'timestamp,\n tags array<string> NOT NULL COMMENT "a, b",\tplace struct<country: string>'
)


@pytest.mark.parametrize("text", TYPES)
def test_type(text):
    assert parse_columns(f"c {text}") == pa.schema([("c", TYPES[text])])
    assert parse_columns(f" c:{text} ") == pa.schema([("c", TYPES[text])])


def test_columns_in_their_order_with_notes_and_odd_names():
    assert parse_columns(MANY) == pa.schema(
        [
            ("account_id", pa.int64()),
            ("show id", pa.int64()),
            ("event_ts", UTC),
            ("tags", array(pa.string())),
            ("place", pa.struct([("country", pa.string())])),
        ]
    )
    assert parse_columns("`a``b` int, not int, comment string, date date").names == [
        "a`b",
        "not",
        "comment",
        "date",
    ]


WRONG = {
    "": ("no columns are written", ""),
    "  \n ": ("no columns are written", ""),
    "a": ("column 'a': expected a type, found the end", "a"),
    "a,": ("column 'a': expected a type, found ','", "a"),
    "a long,": ("expected a column's name, found the end", ""),
    "a long,, b long": ("expected a column's name, found ','", ""),
    "12 long": ("expected a column's name, found '12'", ""),
    "a lnog": ("column 'a': 'lnog' is not a type here", "a"),
    "a long b string": ("column 'a': expected a comma or the end, found 'b'", "a"),
    "a long)": ("column 'a': expected a comma or the end, found ')'", "a"),
    "a long, A string": ("column 'A': the name is taken", "A"),
    "a struct<b: int, b: int>": ("column 'a.b': the name is taken", "a.b"),
    "a struct<b: strng>": ("column 'a.b': 'strng' is not a type here", "a.b"),
    "a struct<b: int": ("column 'a.b': expected a comma or '>', found the end", "a.b"),
    "a struct<>": ("column 'a': expected a column's name, found '>'", "a"),
    "a array": ("column 'a': expected '<', found the end", "a"),
    "a array<lon>": ("column 'a.element': 'lon' is not a type here", "a.element"),
    "a array<long": ("column 'a': expected '>', found the end", "a"),
    "a map<string>": ("column 'a': expected ',', found '>'", "a"),
    "a map<string, x>": ("column 'a.value': 'x' is not a type here", "a.value"),
    "a decimal(39, 2)": ("column 'a': decimal(39,2) cannot be", "a"),
    "a decimal(3, 4)": ("column 'a': decimal(3,4) cannot be", "a"),
    "a decimal(0)": ("column 'a': decimal(0,0) cannot be", "a"),
    "a decimal(x)": ("column 'a': expected a number, found 'x'", "a"),
    "a decimal(3": ("column 'a': expected ')', found the end", "a"),
    "a varchar(10)": ("column 'a': 'varchar' is not a type here", "a"),
    "a interval day": ("column 'a': 'interval' is not a type here", "a"),
    "a long not": ("column 'a': expected NULL after NOT, found the end", "a"),
    "a long comment x": ("column 'a': expected a quoted text after COMMENT, found 'x'", "a"),
    "a-b long": ("cannot read the columns from '-b long' on", ""),
    "a long, größe int": ("cannot read the columns from 'öße int' on", ""),
    "a " + "array<" * 2000: ("column 'a': nested deeper than 50 types", "a"),
    "a `b": ("cannot read the columns from '`b' on", ""),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_refused_with_its_column(text):
    with pytest.raises(ConfigError) as caught:
        parse_columns(text)
    message, column = WRONG[text]
    assert caught.value.message == message
    assert caught.value.facts == {"column": column}
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("a lnog", "did you mean 'long'?"),
        ("a array<strin>", "did you mean 'string'?"),
        ("a varchar(10)", "write string"),
        ("a map", "write map<type, type>"),
    ],
)
def test_the_fix_names_what_was_meant(text, fix):
    with pytest.raises(ConfigError) as caught:
        parse_columns(text)
    assert caught.value.fix == fix


NAMES = st.text(min_size=1, max_size=5)
LEAVES = st.sampled_from(sorted({type_text(kind) for kind in TYPES.values()})).map(
    lambda text: parse_columns(f"c {text}").field("c").type
)


def structs(kinds):
    return st.dictionaries(NAMES, kinds, min_size=1, max_size=3).map(
        lambda parts: pa.struct(
            list({name.lower(): (name, parts[name]) for name in parts}.values())
        )
    )


KINDS = st.recursive(
    LEAVES,
    lambda kinds: st.one_of(
        kinds.map(array), structs(kinds), st.tuples(LEAVES, kinds).map(lambda kv: pa.map_(*kv))
    ),
    max_leaves=6,
)


@given(structs(KINDS).map(lambda kind: pa.schema(list(kind))))
def test_written_columns_read_back(columns):
    assert parse_columns(write_columns(columns)) == columns


@given(st.text(alphabet="ab long,<>()`:'\"1_array structmap", max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        columns = parse_columns(text)
    except ConfigError:
        return
    assert parse_columns(write_columns(columns)) == columns


@pytest.mark.spark
@pytest.mark.parametrize("text", [*(f"c {text}" for text in TYPES), MANY])
def test_as_spark_reads_it(spark, text):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = parse_columns(text)
    theirs = to_arrow_schema(StructType.fromDDL(text), timezone="UTC")
    assert columns.names == theirs.names
    assert [nullable(kind) for kind in theirs.types] == columns.types
    again = StructType.fromDDL(write_columns(columns))
    assert [
        nullable(kind) for kind in to_arrow_schema(again, timezone="UTC").types
    ] == columns.types


def nullable(kind):
    """The type with parts that may be null, as ours are."""
    if pa.types.is_list(kind):
        return array(nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, nullable(part.type)) for part in kind])
    return kind

"""CSV: one verdict per record, from its own text alone."""

import csv
import io
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.records.csv_decoding import decode_csv, read_column
from tidemill.records.ddl import parse_columns
from tidemill.records.decoded import UnreadableFile
from tidemill.rows.columns import RAW, REASON

DDL = "a long, b string, c double, d timestamp, e boolean, f date, g decimal(6,2), h int"
KINDS = {field.name: field.type for field in parse_columns(f"{DDL}, i binary, j float")}
TEXTS = [
    "", "0", "-0", "7", "007", "+7", " 7", "7 ", "1_000", "0x1F", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "2147483648", "1.5", "1.", ".5", "1e5", "1e999",
    "-1E-400", "nan", "inf", "true", "TRUE", "False", "yes", "2026-01-01", "2026-1-1", "2026-02-30",
    "2026-01-01T10:00Z", "2026-01-01 10:00:00", "2026-01-01T10:00:00.123456789+01:00",
    "2026-01-01T25:00Z", "1767225600000", "-1", "99999999999999999", "12.345", "12345.67", "YQ==",
    "a,b", 'a"b', "ä", "\x00", "noon",
]  # fmt: skip


def decode(content, ddl=DDL, required=()):
    lines = iter(content.splitlines(keepends=True))
    batches = list(decode_csv(lines, parse_columns(ddl), "UTC", required))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


@given(st.sampled_from(sorted(KINDS)), st.lists(st.sampled_from(TEXTS).map(lambda t: t or None)))
def test_a_value_is_read_as_if_it_were_alone(name, texts):
    found, bad = read_column(texts, KINDS[name], "Europe/Berlin")
    for index, text in enumerate(texts):
        alone, reasons = read_column([text], KINDS[name], "Europe/Berlin")
        assert found[index] == alone[0] or (not found[index].is_valid and not alone[0].is_valid)
        assert bad.get(index) == reasons.get(0)
        assert text is None or found[index].is_valid or index in bad


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a", "007", 7),
        ("c", "1e5", 1e5),
        ("c", "-1E-400", -0.0),
        ("e", "TRUE", True),
        ("b", " a ", " a "),
        ("i", "YQ==", b"a"),
    ],
)
def test_plain_values(name, text, value):
    found, bad = read_column([text], KINDS[name], "UTC")
    assert found.to_pylist() == [value] and not bad


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a", "0x1F", "text is not a whole number"),
        ("a", "1.0", "text is not a whole number"),
        ("a", "9" * 5_000, "text is not a whole number"),
        ("h", "2147483648", "number out of range for int"),
        ("c", "nan", "text is not a number"),
        ("c", "1e999", "number out of range for double"),
        ("g", "12.345", "number does not fit decimal(6,2)"),
        ("e", "yes", "text is not true or false"),
        ("d", "noon", "text is not a time"),
        ("f", "2026-02-30", "text is not a date"),
        ("i", "a", "text is not base64"),
    ],
)
def test_what_is_not_a_value_says_why(name, text, reason):
    found, bad = read_column([text], KINDS[name], "UTC")
    assert found.null_count == 1 and bad == {0: reason}


RECORDS = st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2))


@given(RECORDS, st.sampled_from(["\n", "\r\n"]))
def test_every_record_comes_back(records, end):
    """Whatever the csv module writes, quotes and line ends inside fields included."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b"], *records])
    lines = (line for line in _lines(out.getvalue().encode()))
    batches = decode_csv(lines, parse_columns("a string, b string"), "UTC", ())
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [[row["a"] or "", row["b"] or ""] for row in found] == records
    assert all(row[REASON] is None for row in found)


def _lines(content):
    *whole, rest = content.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def test_a_bad_record_leaves_its_neighbours_alone():
    good = b'1,"x\ny",1.5,2026-01-01T00:00Z,true,2026-01-01,1.25,3\n'
    bad = [b"1,2\n", b'1,"a"b,,,,,,\n', b"x,,,,,,,\n", b"1,\xff,,,,,,\n"]
    header = b"a,b,c,d,e,f,g,h\n"
    (alone,) = decode(header + good)
    assert alone[REASON] is None and alone["b"] == "x\ny"
    for order in itertools.permutations([good, *bad, good]):
        rows = decode(header + b"".join(order))
        assert len(rows) == 6
        assert [row[REASON] is None for row in rows] == [record == good for record in order]
        assert all(row == alone for row in rows if row[REASON] is None)
        assert [row[RAW] for row in rows if row[REASON] is not None] == [
            record.rstrip(b"\n") for record in order if record != good
        ]


def test_a_quote_that_is_never_closed_takes_the_rest_and_says_so():
    rows = decode(b'a,b\n1,x\n2,"y\n3,z\n', "a long, b string")
    assert [row["a"] for row in rows] == [1, None]
    assert rows[1][REASON] == "not CSV: unexpected end of data"
    assert rows[1][RAW] == b'2,"y\n3,z'


@pytest.mark.parametrize(
    ("content", "required", "reason"),
    [
        (b"", (), "no header"),
        (b"\n\n", (), "no header"),
        (b'"a\n', (), "header cannot be read"),
        (b"\xff\n", (), "header cannot be read"),
        (b"a,b,a\n", (), "column 'a' twice"),
        (b"b\n", ("a",), "no column 'a'"),
    ],
)
def test_a_file_without_a_usable_header_is_unreadable(content, required, reason):
    with pytest.raises(UnreadableFile, match=reason):
        decode(content, "a long, b string", required)

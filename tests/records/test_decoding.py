import base64
import json
import struct
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.records import json_oracle
from tests.records.decoded import AVRO, NOTES, decoded
from tests.records.json_texts import COLUMNS, TIMES, batches
from tidemill.records.ddl import parse_columns
from tidemill.records.decoding import Format, _decoder, arrow_schema
from tidemill.rows.columns import EXTRA, RAW, REASON


def one(columns, value, **options):
    """``(row, reason, extra)`` of one record."""
    form = Format("json", columns, **options)
    (row,) = decoded(form, [value])
    raw, reason, extra = (row.pop(name) for name in NOTES)
    if reason is not None:
        assert raw == value
        assert extra is None
        assert set(row.values()) == {None}
        return None, reason, None
    assert raw is None
    return row, None, extra


def at(*parts):
    return datetime(*parts, tzinfo=UTC)


wall = datetime.fromisoformat

READ = [
    ("boolean", "true", True),
    ("boolean", "null", None),
    ("byte", "-128", -128),
    ("short", "32767", 32767),
    ("int", "-2147483648", -(2**31)),
    ("long", "9223372036854775807", 2**63 - 1),
    ("long", "-0", 0),
    ("float", "1.5", 1.5),
    ("float", "3.4028234663852886e38", 3.4028234663852886e38),
    ("double", "7", 7.0),
    ("double", "1e-400", 0.0),
    ("double", "1" + "0" * 308, 1e308),
    ("string", '"a\\u0000\\ud83d\\ude00é"', "a\0😀é"),
    ("binary", '"+/8="', b"\xfb\xff"),
    ("binary", '""', b""),
    ("date", '"2024-02-29"', date(2024, 2, 29)),
    ("date", '"0001-01-01"', date(1, 1, 1)),
    ("timestamp", '"2026-03-01T12:30:15Z"', at(2026, 3, 1, 12, 30, 15)),
    ("timestamp", '"2026-03-01 12:30:15.5Z"', at(2026, 3, 1, 12, 30, 15, 500_000)),
    ("timestamp", '"2026-03-01T12:30:15,123Z"', at(2026, 3, 1, 12, 30, 15, 123_000)),
    ("timestamp", '"2026-03-01T12:30"', at(2026, 3, 1, 12, 30)),
    ("timestamp", '"2026-03-01T12:30+01"', at(2026, 3, 1, 11, 30)),
    ("timestamp", '"2026-03-01T12:30:00+0130"', at(2026, 3, 1, 11)),
    ("timestamp", '"2026-03-01T12:30:00-01:30"', at(2026, 3, 1, 14)),
    ("timestamp", '"2026-03-01T12:30:15.123456999Z"', at(2026, 3, 1, 12, 30, 15, 123_456)),
    ("timestamp", '"2026-03-01T12:30:15.12345699999Z"', at(2026, 3, 1, 12, 30, 15, 123_456)),
    ("timestamp", '"1969-12-31T23:59:59.9999999Z"', at(1969, 12, 31, 23, 59, 59, 999_999)),
    ("timestamp", '"9999-12-31T23:59:59.999999999"', at(9999, 12, 31, 23, 59, 59, 999_999)),
    ("timestamp", "1767225600123", at(2026, 1, 1, 0, 0, 0, 123_000)),
    ("timestamp", "-1", at(1969, 12, 31, 23, 59, 59, 999_000)),
    ("timestamp_ntz", '"2026-03-01T12:30:15.123456789"', wall("2026-03-01T12:30:15.123456")),
    ("timestamp_ntz", "1000", wall("1970-01-01T00:00:01")),
    ("decimal(10,2)", "12.5", Decimal("12.50")),
    ("decimal(10,2)", "12.500", Decimal("12.50")),
    ("decimal(10,2)", '"12.5"', Decimal("12.50")),
    ("decimal(10,2)", "1.25e1", Decimal("12.50")),
    ("decimal(10,2)", "99999999.99", Decimal("99999999.99")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38,38)", "0." + "123456789" * 4 + "12", Decimal("0." + "123456789" * 4 + "12")),
    ("decimal(5,2)", "0e99999999999999999999", Decimal("0.00")),
    ("array<int>", "[1, null, 3]", [1, None, 3]),
    ("array<timestamp>", '["2026-03-01T12:30Z", 0]', [at(2026, 3, 1, 12, 30), at(1970, 1, 1)]),
    ("array<array<string>>", '[["a"], null, []]', [["a"], None, []]),
    ("map<string,long>", '{"b": 1, "a": null, "b": 2}', [("b", 2), ("a", None)]),
    ("struct<a: long, b: date>", '{"b": "2026-01-02"}', {"a": None, "b": date(2026, 1, 2)}),
    ("struct<a: struct<b: decimal(3,1)>>", '{"a": {"b": 1}}', {"a": {"b": Decimal("1.0")}}),
    ("array<struct<a: binary>>", '[{"a": "AA=="}, null, {}]', [{"a": b"\0"}, None, {"a": None}]),
]


@pytest.mark.parametrize(("kind", "text", "expected"), READ)
def test_value(kind, text, expected):
    value = f'{{"c": {text}}}'.encode()
    assert one(f"c {kind}", value) == ({"c": expected}, None, None)
    assert json_oracle.judge(value, parse_columns(f"c {kind}")) == ({"c": expected}, None, None)


DEAD = [
    ("boolean", "1", "c: expected boolean, found integer"),
    ("byte", "128", "c: number out of range for byte"),
    ("short", "-32769", "c: number out of range for short"),
    ("int", "2147483648", "c: number out of range for int"),
    ("long", "9223372036854775808", "c: number out of range for long"),
    ("long", "1" * 400, "c: number out of range for long"),
    ("long", '"12"', "c: expected long, found string"),
    ("long", "1.5", "c: expected long, found fraction"),
    ("long", "1.0", "c: expected long, found fraction"),
    ("long", "1e3", "c: expected long, found fraction"),
    ("long", "true", "c: expected long, found boolean"),
    ("long", "[1]", "c: expected long, found array"),
    ("long", "{}", "c: expected long, found object"),
    ("float", "3.5e38", "c: number out of range for float"),
    ("double", "1e400", "c: number out of range for double"),
    ("double", "-1" + "0" * 309, "c: number out of range for double"),
    ("double", "1e99999999999999999999", "c: number out of range for double"),
    ("double", '"1.5"', "c: expected double, found string"),
    ("string", "5", "c: expected string, found integer"),
    ("binary", '"AA"', "c: text is not base64"),
    ("binary", '"-_8="', "c: text is not base64"),
    ("date", '"2026-02-30"', "c: text is not a date"),
    ("date", '"0000-01-01"', "c: text is not a date"),
    ("date", '"2026-03-01T00:00Z"', "c: text is not a date"),
    ("date", "20000", "c: expected date, found integer"),
    ("timestamp", '"2026-03-01"', "c: text is not a time"),
    ("timestamp", '"2026-03-01T12Z"', "c: text is not a time"),
    ("timestamp", '"2026-03-01T24:00:00Z"', "c: text is not a time"),
    ("timestamp", '"2026-03-01T23:59:60Z"', "c: text is not a time"),
    ("timestamp", '"2026-03-01T12:30:15.Z"', "c: text is not a time"),
    ("timestamp", '"2026-03-01T12:30:15+24:00"', "c: text is not a time"),
    ("timestamp", '"2026-03-01t12:30:15z"', "c: text is not a time"),
    ("timestamp", '" 2026-03-01T12:30:15Z"', "c: text is not a time"),
    ("timestamp", '"2026-W09-1T12:30:15Z"', "c: text is not a time"),
    ("timestamp", '"0000-01-01T00:00:00Z"', "c: text is not a time"),
    ("timestamp", '"yesterday"', "c: text is not a time"),
    ("timestamp", '""', "c: text is not a time"),
    ("timestamp", '"0001-01-01T00:00:00+00:01"', "c: time outside the years 1 to 9999"),
    ("timestamp", "253402300800000", "c: time outside the years 1 to 9999"),
    ("timestamp", "1" * 30, "c: time outside the years 1 to 9999"),
    ("timestamp", "1.5", "c: expected timestamp, found fraction"),
    ("timestamp_ntz", '"2026-03-01T12:30Z"', "c: a time with a zone, expected timestamp_ntz"),
    ("decimal(10,2)", "12.505", "c: number does not fit decimal(10,2)"),
    ("decimal(10,2)", "100000000", "c: number does not fit decimal(10,2)"),
    ("decimal(10,2)", "1e999999999", "c: number does not fit decimal(10,2)"),
    ("decimal(10,2)", "1e-99999999999999999999", "c: number does not fit decimal(10,2)"),
    ("decimal(10,2)", '"1_0"', "c: text is not a number"),
    ("decimal(10,2)", '"NaN"', "c: text is not a number"),
    ("decimal(10,2)", '"٣"', "c: text is not a number"),
    ("array<int>", '[1, "a"]', "c[1]: expected int, found string"),
    ("array<array<int>>", "[[], [1, 2147483648]]", "c[1][1]: number out of range for int"),
    ("array<int>", "{}", "c: expected array, found object"),
    ("map<string,long>", '{"k": "v"}', "c.k: expected long, found string"),
    ("map<string,long>", "[]", "c: expected map, found array"),
    ("struct<a: struct<b: long>>", '{"a": {"b": ""}}', "c.a.b: expected long, found string"),
    ("struct<a: long>", '"a"', "c: expected struct, found string"),
    ("array<struct<a: date>>", '[{}, {"a": ""}]', "c[1].a: text is not a date"),
]


@pytest.mark.parametrize(("kind", "text", "reason"), DEAD)
def test_value_that_does_not_fit(kind, text, reason):
    value = f'{{"c": {text}}}'.encode()
    assert one(f"c {kind}", value) == (None, reason, None)
    assert json_oracle.judge(value, parse_columns(f"c {kind}")) == (None, reason, None)


DEEP = b'{"x": ' + b"[" * 99 + b"]" * 99 + b"}"
WHOLE = [
    (None, "no value"),
    (b"", "not JSON"),
    (b" ", "not JSON"),
    (b"\x00", "not JSON"),
    (b"{", "not JSON"),
    (b'{"a": 1', "not JSON"),
    (b'{"a": 1}}', "not JSON"),
    (b'{"a": 1} {"a": 2}', "not JSON"),
    (b'{"a": 1}\n{"a": 2}', "not JSON"),
    (b'{"a": 1},{"a": 2}', "not JSON"),
    (b'{"a": 1,}', "not JSON"),
    (b"{a: 1}", "not JSON"),
    (b"{'a': 1}", "not JSON"),
    (b'{"a": 01}', "not JSON"),
    (b'{"a": NaN}', "not JSON"),
    (b'{"a": Infinity}', "not JSON"),
    (b'{"x": -Infinity}', "not JSON"),
    (b'\xef\xbb\xbf{"a": 1}', "not JSON"),
    ('{"a": 1}'.encode("utf-16"), "not JSON"),
    (b'{"x": "\xff"}', "not JSON: not UTF-8"),
    (b'{"\xff": 1}', "not JSON: not UTF-8"),
    (b'{"x": "\\ud800"}', "not JSON"),
    (b'{"x": "\t"}', "not JSON"),
    (b'{"x": ' + b"1" * 5000 + b"}", "number of too many digits"),
    (b"[]", "expected an object, found array"),
    (b"null", "expected an object, found null"),
    (b'"a"', "expected an object, found string"),
    (b"1.5", "expected an object, found fraction"),
    (b'{"x": 1e400}', "x: number out of range for double"),
    (b'{"x": [{"y": ' + b"1" * 400 + b"}]}", "x[0].y: number out of range for double"),
    (DEEP.replace(b"[]", b"[[]]"), "nested deeper than 100 levels"),
    (b'{"a": ' + b"[" * 100_000, "nested deeper than 100 levels"),
    (b'{"a": 1, "x": ' + b'{"x":' * 100_000, "nested deeper than 100 levels"),
    (b'{"n": ' + b"[" * 500 + b"]" * 500 + b', "n": {}}', "nested deeper than 100 levels"),
    (b'{"x": "\\ud83d", "a": "x"}', "not JSON"),
]


@pytest.mark.parametrize(("value", "reason"), WHOLE)
@pytest.mark.parametrize("columns", ["a long", "a long, n map<string, string>"])
def test_record_that_cannot_be_read(columns, value, reason):
    row, found, extra = one(columns, value)
    assert (row, extra) == (None, None)
    assert found == reason if reason != "not JSON" else found.startswith("not JSON: ")
    theirs = json_oracle.judge(value, parse_columns(columns))[1]
    assert theirs == reason.removesuffix(": not UTF-8")


KEPT = [
    (b'{"a": 1}', {"a": 1}, None),
    (b"{}", {"a": None}, None),
    (b' {\n"a"\t:\r1 } ', {"a": 1}, None),
    (b'{"a": "x", "a": 1}', {"a": 1}, None),
    (b'{"a": 1, "a": null}', {"a": None}, None),
    (b'{"\\u0061": 1}', {"a": 1}, None),
    (b'{"A": 1}', {"a": None}, '{"A":1}'),
    (b'{"f0": 1}', {"a": None}, '{"f0":1}'),
    (b'{"z": {"y": 1.50, "x": [1E2, -0.0]}, "b": null}', None, None),
    (b'{"x": 1, "a": 5, "x": "\\u00e9\\n"}', {"a": 5}, '{"x":"é\\n"}'),
    (b'{"x": 123456789012345678901234567890.123456789}', {"a": None}, None),
    (b'{"p": {"c": "de", "more": 1}}', {"a": None}, '{"p":{"c":"de","more":1}}'),
    (b'{"p": {"c": "de"}, "q": []}', {"a": None}, '{"q":[]}'),
    (b'{"s": [{"t": "x"}, {"u": 2}]}', {"a": None}, '{"s":[{"t":"x"},{"u":2}]}'),
    (DEEP, {"a": None}, '{"x":' + "[" * 99 + "]" * 99 + "}"),
    (b'{"x": "' + b"[" * 5000 + b'"}', {"a": None}, '{"x":"' + "[" * 5000 + '"}'),
]


@pytest.mark.parametrize(("value", "row", "extra"), KEPT)
def test_fields_that_no_column_takes_are_kept(value, row, extra):
    columns = "a long, p struct<c: string>, s array<struct<t: string>>"
    found, reason, kept = one(columns, value)
    assert reason is None
    assert (found, None, kept) == json_oracle.judge(value, parse_columns(columns))
    if row is not None:
        assert found["a"] == row["a"]
    if extra is not None:
        assert kept == extra


def test_extra_keeps_numbers_exact_and_fields_in_order():
    _, _, extra = one(
        "a long", b'{"z": {"y": 1.50, "x": [1E2, -0.0]}, "b": 0.10000000000000000001}'
    )
    assert extra == '{"b":0.10000000000000000001,"z":{"x":[1E+2,-0.0],"y":1.50}}'


def test_local_times_follow_the_zone_with_its_two_clock_changes():
    berlin = [
        ("2026-03-29T01:59:59", at(2026, 3, 29, 0, 59, 59)),
        ("2026-03-29T03:00:00", at(2026, 3, 29, 1)),
        ("2026-10-25T02:30:00", at(2026, 10, 25, 0, 30)),  # twice; the earlier
        ("2026-07-01T12:00:00", at(2026, 7, 1, 10)),
    ]
    form = Format("json", "t timestamp, n timestamp_ntz", zone="Europe/Berlin")
    values = [f'{{"t": "{text}", "n": "{text}"}}'.encode() for text, _ in berlin]
    values.append(b'{"t": "2026-03-29T02:30:00"}')  # never
    together = decoded(form, values)
    assert [row["t"] for row in together[:-1]] == [moment for _, moment in berlin]
    assert [row["n"] for row in together[:-1]] == [datetime.fromisoformat(t) for t, _ in berlin]
    odd = [b'{"t": 0}', *values]  # numbers among texts: each is read alone
    assert decoded(form, odd)[1:] == together
    assert [decoded(form, [value])[0] for value in values] == together
    assert one("t timestamp", b'{"t": "0001-01-01T00:00:00"}', zone="Europe/Berlin")[1] == (
        "t: time outside the years 1 to 9999"
    )


def shown(value):
    """A value that is equal only to what is really the same: -0.0 is not 0.0, 1 is not 1.0."""
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    if isinstance(value, tuple):
        return value[0], shown(value[1])
    if isinstance(value, float):
        return struct.pack("d", value)
    if isinstance(value, Decimal) and value.is_zero():
        value = abs(value)
    return value.astimezone(UTC).isoformat() if getattr(value, "tzinfo", None) else repr(value)


def verdicts(form, values):
    found = []
    for row in decoded(form, values):
        raw, reason, extra = (row.pop(name) for name in NOTES)
        if reason is not None:
            assert set(row.values()) == {None}
            found.append((None, reason, extra, raw))
        else:
            found.append((shown(row), None, extra, raw))
    return found


@settings(max_examples=200)
@given(batches())
@example(("a long, n array<struct<a: long>>", "UTC", [b'{"n": "\xff", "n": []}']))
@example(("a long, n array<struct<a: long>>", "UTC", [b'{"n": 1e400, "n": []}', b'{"n": []}']))
@example(("a double", "UTC", [b'{"a": 1e-99999999999999999999, "b": 1}']))
@example(("a map<string,long>", "UTC", [b'{"a": {"": ""}}', b'{"a": {"[0]": ""}}']))
@example(("a timestamp", "UTC", [b'{"a": "2026-01-01T00:00:00Z"}', b'{"a": "2026-01-01T00Z"}']))
def test_every_verdict_is_the_oracles_and_the_records_own(batch):
    columns, zone, values = batch
    form = Format("json", columns, zone=zone)
    together = verdicts(form, values)
    for value, (row, reason, extra, raw) in zip(values, together, strict=True):
        theirs = json_oracle.judge(value, parse_columns(columns), zone)
        if theirs[1] == "not JSON":
            assert reason is not None
            assert reason.startswith("not JSON: ")
        else:
            assert (row, reason, extra) == (shown(theirs[0]) if theirs[0] else None, *theirs[1:])
        assert raw == (None if reason is None else value)
        assert [(row, reason, extra, raw)] == verdicts(form, [value])
    rule = _decoder(form)._rule
    for value, (row, reason, extra, _) in zip(values, together, strict=True):
        try:
            slow, kept = rule.read(value)
        except Exception as verdict:
            assert verdict.text == reason
        else:
            arrow = pa.RecordBatch.from_pylist([slow], schema=arrow_schema(form)).to_pylist()
            assert (shown(arrow[0]), kept) == (row, extra)


@settings(max_examples=100)
@given(
    st.lists(TIMES.map(json.dumps), min_size=1, max_size=4),
    st.sampled_from(["timestamp", "timestamp_ntz"]),
)
def test_times_in_long_batches(texts, kind):
    """Long enough that a column is halved; few enough forms that parts are read at once."""
    plain = '"2026-03-01T12:30:15.123Z"' if kind == "timestamp" else '"2026-03-01T12:30:15.123"'
    places = {100 * n: text for n, text in enumerate(texts)}
    values = [f'{{"c": {places.get(n, plain)}}}'.encode() for n in range(600)]
    found = verdicts(Format("json", f"c {kind}"), values)
    for n, (row, reason, _, _) in enumerate(found):
        if n in places or n == 1:
            theirs = json_oracle.judge(values[n], parse_columns(f"c {kind}"))
            assert (row, reason) == (shown(theirs[0]) if theirs[0] else None, theirs[1])
        else:
            assert (row, reason) == found[1][:2]


@settings(max_examples=200)
@given(st.lists(st.one_of(st.binary(max_size=40), st.none()), max_size=5), COLUMNS)
def test_garbage_is_never_an_error(values, columns):
    for value, row in zip(values, decoded(Format("json", columns), values), strict=True):
        assert row[RAW] == (None if row[REASON] is None else value)


def test_verdict_does_not_know_the_stack():
    """A parser's recursion limit must not decide: the same deep record, from deep inside."""
    form = Format("json", "a long, n array<struct<a: long>>")
    values = [b'{"n": ' + b"[" * depth + b"]" * depth + b"}" for depth in (5, 99, 100, 400, 900)]
    values += [b'{"x": ' + b"[" * depth + b"]" * depth + b"}" for depth in (5, 99, 100, 400, 900)]

    def deep(levels):
        return decoded(form, values) if levels == 0 else deep(levels - 1)

    assert deep(sys.getrecursionlimit() - 400) == decoded(form, values)


def test_long_batches_keep_order_and_notes():
    form = Format("json", "a long, t timestamp")
    values = [f'{{"a": {n}, "t": {n}}}'.encode() for n in range(10_000)]
    values[4095], values[4096], values[9_999] = b"x", None, b'{"a": 9999, "new": 1}'
    rows = decoded(form, values)
    for n, row in enumerate(rows):
        dead = n in (4095, 4096)
        assert row["a"] == (None if dead else n)
        assert (row[REASON] is not None) == dead
        assert (row[EXTRA] is not None) == (n == 9_999)
    assert rows[4095][RAW] == b"x"
    assert rows[4096][RAW] is None


def test_no_records():
    for form in (
        Format("json", "a long, s struct<b: date>"),
        Format("raw", ""),
        Format("avro", "", AVRO),
    ):
        assert decoded(form, []) == []


PYTHON = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    st.datetimes(timezones=st.just(UTC)),
    st.binary(),
    st.lists(st.text() | st.none()),
)


def as_json(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value.isoformat()


@given(st.lists(PYTHON, max_size=5))
def test_what_python_writes_is_read_back(rows):
    form = Format("json", "a long, b double, c string, d timestamp, e binary, f array<string>")
    records = [dict(zip("abcdef", row, strict=True)) for row in rows]
    values = [json.dumps(record, default=as_json).encode() for record in records]
    nothing = dict.fromkeys(NOTES)
    assert shown(decoded(form, values)) == shown([{**record, **nothing} for record in records])

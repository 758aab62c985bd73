"""Batches of JSON records for Hypothesis: values that mostly fit the columns, some damaged."""

import base64
import json
from datetime import datetime

import pyarrow as pa
from hypothesis import strategies as st

from tidemill.records.ddl import parse_columns

LEAVES = ["boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date"]
LEAVES += ["timestamp", "timestamp", "timestamp_ntz", "decimal(5,2)", "decimal(38,10)"]
KINDS = st.recursive(
    st.sampled_from(LEAVES),
    lambda kinds: st.one_of(
        kinds.map(lambda kind: f"array<{kind}>"),
        kinds.map(lambda kind: f"map<string,{kind}>"),
        st.lists(kinds, min_size=1, max_size=3).map(
            lambda parts: f"struct<{', '.join(f'{n}: {k}' for n, k in zip('abc', parts))}>"  # noqa: B905
        ),
    ),
    max_leaves=3,
)
COLUMNS = st.lists(KINDS, min_size=1, max_size=4).map(
    lambda kinds: ", ".join(f"{name} {kind}" for name, kind in zip("abcd", kinds))  # noqa: B905
)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(-200, 200).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, allow_nan=False, places=2).map(str),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "1.0",
            "1e3",
            "1E+2",
            "1.5e-3",
            "1e400",
            "-1e400",
            "1e-400",
            "0e99999999999999999999",
            "1e-99999999999999999999",
            "-1e-99999999999999999999",
            "1e99999999999999999999",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551616",
            "9007199254740993",
            "127",
            "128",
            "32768",
            "2147483648",
            "3.4028234663852886e38",
            "3.4028234663852888e38",
            "3.5e38",
            "1.7976931348623157e308",
            "1.7976931348623159e308",
            "2.4703282292062328e-324",
            "999.99",
            "1000",
            "123.456",
            "123.4500",
            "1e2",
            "253402300799999",
            "253402300800000",
            "-62135596800000",
            "-62135596800001",
            "NaN",
            "01",
            "1.",
            ".5",
            "-",
        ]
    ),
    st.sampled_from(["1" + "0" * 308, "1" + "0" * 309, "0." + "1" * 400, "9" * 28 + ".5"]),
)
ZONES = st.sampled_from(["Z", "Z", "", "+00:00", "-01:30", "+0530", "+01", "+24:00", "z", " Z"])


def time_text(moment, cut, mark, fraction, zone):
    text = moment.isoformat(mark)[:cut]
    return text + (fraction if cut == 19 else "") + zone


TIMES = st.one_of(
    st.builds(
        time_text,
        st.datetimes(*map(datetime.fromisoformat, ("1950-01-01", "2100-01-01"))).map(
            lambda moment: moment.replace(microsecond=0)
        ),
        st.sampled_from([19, 19, 19, 16, 13, 10]),
        st.sampled_from("TTTT t"),
        st.one_of(
            st.sampled_from(["", ".", ",5", ".٣"]),
            st.integers(0, 10**11).map(lambda digits: f".{digits}"),
        ),
        ZONES,
    ),
    st.sampled_from(
        [
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59.9999999-00:01",
            "2026-02-30T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-01-01T23:59:60Z",
            "2026-01-01T24:00:00Z",
            "20260101T000000Z",
            "2026-W01-1T00:00:00Z",
            "2026-01-01T00:00:00+01:00:00",
            "1600-01-01T00:00:00.123456789Z",
            "1677-09-21T00:12:43.145224192Z",
            "2262-04-11T23:47:16.854775808Z",
        ]
    ),
)
DATES = st.one_of(st.dates().map(str), st.sampled_from(["2026-2-01", "0000-01-01", "2026-02-30"]))
TEXTS = st.one_of(
    st.text(max_size=6),
    st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode()),
    st.sampled_from(
        ["AA==", "AB==", "AA=", "A", "AA==AA==", "A A=", "==", "12.5", "1e2", "007", "-"]
    ),
)


def quote(text, plainly):
    return json.dumps(text, ensure_ascii=not plainly)


QUOTED = st.one_of(
    st.builds(quote, st.one_of(TEXTS, TIMES, DATES), st.booleans()),
    st.sampled_from(['"\\ud83d\\ude00"', '"\\/"', '"\\u0000"', '"\\u00E9"']),
)
NO_JSON = st.sampled_from(
    ["nul", "NaN", "-Infinity", "01", "1.", ".5", "-", '"\\ud800"', '"\t"', '"\\x"', '"', "[1,]"]
)
SPACES = st.sampled_from(["", "", "", " ", "\n\t\r "])


def joined(parts, space, brackets):
    return f"{brackets[0]}{space}{f'{space},'.join(parts)}{space}{brackets[1]}"


def objects(names, values):
    pairs = st.lists(
        st.tuples(names, SPACES, values).map(lambda p: f"{p[0]}{p[1]}:{p[1]}{p[2]}"), max_size=4
    )
    return st.builds(joined, pairs, SPACES, st.just("{}"))


NAMES = st.sampled_from(
    ['"a"', '"b"', '"c"', '"d"', '"\\u0061"', '"A"', '"f0"', '""', '"é"', '"["']
)
ANYTHING = st.recursive(
    st.one_of(
        NUMBERS, QUOTED, NUMBERS, QUOTED, st.sampled_from(["null", "true", "false"]), NO_JSON
    ),
    lambda parts: st.one_of(
        st.builds(joined, st.lists(parts, max_size=3), SPACES, st.just("[]")), objects(NAMES, parts)
    ),
    max_leaves=4,
)


def fitting(kind):
    """JSON texts that mostly fit the type."""
    return st.one_of(*[good(kind)] * 8, st.just("null"), ANYTHING)


def good(kind):
    if pa.types.is_list(kind):
        return st.builds(
            joined, st.lists(fitting(kind.value_type), max_size=3), SPACES, st.just("[]")
        )
    if pa.types.is_map(kind):
        return objects(NAMES, fitting(kind.item_type))
    if pa.types.is_struct(kind):
        return records(list(kind))
    if pa.types.is_boolean(kind):
        return st.sampled_from(["true", "false"])
    if pa.types.is_integer(kind):
        half = 2 ** (kind.bit_width - 1)
        return st.integers(-half, half - 1).map(str)
    if pa.types.is_floating(kind):
        return st.one_of(
            st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr), NUMBERS
        )
    if pa.types.is_decimal(kind):
        return st.one_of(NUMBERS, NUMBERS.map(json.dumps))
    if pa.types.is_timestamp(kind):
        common = TIMES if kind.tz else TIMES.map(lambda text: text.rstrip("Z"))
        return st.one_of(common.map(json.dumps), st.integers(-(10**12), 10**13).map(str))
    if pa.types.is_date(kind):
        return DATES.map(json.dumps)
    return QUOTED


@st.composite
def records(draw, fields):
    """Objects with these fields in any order: some missing, some twice, some unknown."""
    chosen = draw(st.permutations(fields))[
        : draw(st.integers(max(0, len(fields) - 1), len(fields)))
    ]
    pairs = [f'"{field.name}":{draw(SPACES)}{draw(fitting(field.type))}' for field in chosen]
    if pairs and draw(st.integers(0, 5)) == 0:
        pairs.append(draw(st.sampled_from(pairs)))
    if draw(st.integers(0, 3)) == 0:
        pairs.insert(0, f"{draw(NAMES)}:{draw(ANYTHING)}")
    return joined(pairs, draw(SPACES), "{}")


@st.composite
def damaged(draw, text):
    """The bytes of a text, now and then cut off, or with a byte changed, left out or put in."""
    value = text.encode("utf-8", "surrogatepass")
    how = draw(st.sampled_from([None] * 20 + [0, 1, 2, 3, 4]))
    if how is None or how == 4 or not value:
        return None if how == 4 else value
    place = draw(st.integers(0, len(value) - 1))
    byte = draw(
        st.sampled_from([b"\xff", b'"', b"{", b"}", b"[", b",", b"\\", b"\0", b"1", b"e", b"\xc3"])
    )
    return [
        value[:place],
        value[:place] + value[place + 1 :],
        value[:place] + byte + value[place + 1 :],
        value[:place] + byte + value[place:],
    ][how]


@st.composite
def batches(draw):
    columns = draw(COLUMNS)
    fields = list(parse_columns(columns))
    texts = draw(st.lists(st.one_of(*[records(fields)] * 7, ANYTHING), max_size=6))
    return (
        columns,
        draw(st.sampled_from(["UTC", "Asia/Kolkata"])),
        [draw(damaged(t)) for t in texts],
    )

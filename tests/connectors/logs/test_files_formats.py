import json
import pickle
import subprocess
import sys
from dataclasses import asdict

import pyarrow as pa
import pytest

from tests.records.decoded import AVRO, NOTES, decoded
from tidemill.errors import ConfigError
from tidemill.records.decoding import Format, decode
from tidemill.rows.columns import RAW, REASON


def test_raw_keeps_every_record():
    form = Format("raw", "")
    batch = decode(form, [b"k", None, b""], [b"\xff", None, b""])
    nothing = dict.fromkeys(NOTES)
    assert batch.to_pylist() == [
        {"key": b"k", "value": b"\xff", **nothing},
        {"key": None, "value": None, **nothing},
        {"key": b"", "value": b"", **nothing},
    ]
    assert batch.schema.types[:2] == [pa.binary(), pa.binary()]


def test_framed_json():
    form = Format("json", "a long", framed=True)
    framed = b"\0\0\0\1\2" + b'{"a": 1}'
    values = [framed, b'{"a": 1}', b"\0\0\0\1", None, framed[:-1]]
    rows = decoded(form, values)
    assert [row["a"] for row in rows] == [1, None, None, None, None]
    unframed = "no frame: expected a zero byte and a schema id before the record"
    reasons = [row[REASON] for row in rows]
    assert reasons[:4] == [None, unframed, unframed, "no value"]
    assert reasons[4].startswith("not JSON: ")
    assert [row[RAW] for row in rows] == [None, *values[1:]]


def test_a_format_travels():
    form = Format("json", "a long", zone="Europe/Berlin")
    assert pickle.loads(pickle.dumps(form)) == form
    assert Format(**json.loads(json.dumps(asdict(form)))) == form


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Format("jsn", "a long"), "'jsn' is not a format of records"),
        (lambda: Format("json", "a long", zone="Berlin"), "'Berlin' is not a time zone"),
        (lambda: Format("json", ""), "no columns are written"),
        (lambda: Format("json", "a lng"), "column 'a': 'lng' is not a type here"),
        (lambda: Format("json", "_raw binary"), "column '_raw': the name is Tidemill's own"),
        (
            lambda: Format("json", "a struct<b: map<long, string>>"),
            "column 'a': a map in JSON has keys of type string",
        ),
        (lambda: Format("avro", ""), "the Avro format has no schema"),
    ],
)
def test_impossible_formats_are_refused_when_made(make, message):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.message == message
    assert caught.value.fix


@pytest.mark.parametrize("library", ["msgspec", "fastavro"])
def test_a_missing_library_names_its_install_command(library):
    """In a process of its own: here the library is loaded already."""
    form = 'Format("json", "a long")' if library == "msgspec" else f"Format('avro', '', {AVRO!r})"
    code = f"""
import sys
sys.modules[{library!r}] = None
from tidemill.errors import ConfigError
from tidemill.records.decoding import Format, arrow_schema, decode
form = {form}
assert arrow_schema(form).names == ["a"]
try:
    decode(form, [None], [b"x"])
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{library} is not installed" in done.stdout
    assert "pip install 'tidemill[kafka]'" in done.stdout


def test_what_describes_records_loads_no_spark_and_no_parser():
    code = """
import sys
from tidemill.records.decoding import Format, arrow_schema, decode
arrow_schema(Format("json", "a long"))
decode(Format("raw", ""), [None], [None])
others = ("pyspark", "confluent_kafka", "fastavro")
print([name for name in (*others, "msgspec") if name in sys.modules])
decode(Format("json", "a long"), [None], [b"{}"])
print([name for name in others if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"

import pickle

import pyarrow as pa
import pytest
from pyiceberg.io import PY_IO_IMPL, load_file_io
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tidemill.config.loader import load_config
from tidemill.iceberg.catalog import open_metadata
from tidemill.iceberg.local_files import LocalFile, PlainFiles, for_data, with_files

YAML = """
catalog: {uri: "sqlite:///catalog.db", warehouse: "lake", EXTRA}
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
"""


@pytest.mark.parametrize("name", ["plain.json", "a b%20c.json", "ünï.json", "dt=1"])
@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_local_file_is_read_as_pyiceberg_would(tmp_path, prefix, name):
    location = f"{prefix}{tmp_path}/{name}"
    (tmp_path / name).write_bytes(b"rows")
    found, usual = PlainFiles({}).new_input(location), PyArrowFileIO({}).new_input(location)
    assert isinstance(found, LocalFile)
    for file in (found, usual):
        with file.open() as stream:
            assert stream.read() == b"rows"
        assert (len(file), file.exists(), file.location) == (4, True, location)


@pytest.mark.parametrize("name", ["a#b.json", "a?b.json"])
def test_a_path_is_not_cut_where_a_uri_would_be(tmp_path, name):
    (tmp_path / name).write_bytes(b"rows")
    assert PlainFiles({}).new_input(f"{tmp_path}/{name}").open().read() == b"rows"


def test_a_file_that_is_not_there(tmp_path):
    file = PlainFiles({}).new_input(f"file://{tmp_path}/none")
    assert not file.exists()
    with pytest.raises(FileNotFoundError, match="none"):
        file.open()


@pytest.mark.parametrize(
    ("properties", "location"),
    [
        ({"s3.region": "eu-west-1"}, "s3://bucket/a.json"),
        ({"DEFAULT_SCHEME": "s3", "s3.region": "eu-west-1"}, "bucket/a.json"),
    ],
)
def test_what_is_not_local_is_left_to_pyiceberg(properties, location):
    assert isinstance(PlainFiles(properties).new_input(location), PyArrowFile)


def test_writing_is_left_to_pyiceberg(tmp_path):
    files, location = PlainFiles({}), f"file://{tmp_path}/new/a.json"
    with files.new_output(location).create() as stream:
        stream.write(b"rows")
    assert (tmp_path / "new" / "a.json").read_bytes() == b"rows"
    files.delete(files.new_input(location))
    assert not files.new_input(location).exists()
    with pytest.raises(FileNotFoundError):
        files.delete(location)


def test_data_is_read_the_way_pyiceberg_chooses():
    files = load_file_io(with_files(PlainFiles, {"a": "b"}), "file:///lake")
    assert isinstance(files, PlainFiles)
    chosen = for_data(pickle.loads(pickle.dumps(files)), "file:///lake/table")
    assert isinstance(chosen, PyArrowFileIO)
    assert chosen.properties == {"a": "b"}
    assert for_data(chosen, "file:///lake/table") is chosen


@pytest.mark.parametrize(
    ("extra", "kind"),
    [("", PlainFiles), (f"{PY_IO_IMPL}: pyiceberg.io.fsspec.FsspecFileIO", FsspecFileIO)],
)
def test_a_plan_opens_tables_plainly_unless_the_user_chose(tmp_path, extra, kind):
    (tmp_path / "tidemill.yaml").write_text(YAML.replace("EXTRA", extra))
    catalog = open_metadata(load_config(tmp_path / "tidemill.yaml"))
    catalog.create_namespace("a")
    made = catalog.create_table("a.plays", pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1, 2]}))
    found = catalog.load_table("a.plays")
    assert type(found.io) is kind
    assert found.metadata == made.metadata
    assert found.scan().to_arrow().column("id").to_pylist() == [1, 2]

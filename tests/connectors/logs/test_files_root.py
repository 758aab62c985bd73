"""Below the root of a feed, and nowhere else."""

import pickle

import pytest
from pyarrow import fs

from tidemill.connectors.logs.files.root import FoundFile, Root
from tidemill.records.decoded import UnreadableFile


def test_below_a_root_elsewhere_requests_choose_nothing_but_the_file():
    root = Root("s3://key:secret@bucket/landing/?region=eu")
    root.__dict__["_opened"] = (fs._MockFileSystem(), "bucket/landing")
    assert root.shown == "s3://bucket/landing"
    for uri in ("a b/c.csv", "s3://bucket/landing/a%20b/c.csv"):
        assert root.resolve(uri) == "bucket/landing/a b/c.csv"
    for uri in (
        "../c.csv",
        "a/../../c.csv",
        "a//c.csv",
        "/etc/passwd",
        "s3://bucket/landing2/c.csv",
        "s3://bucket/landing/%2e%2e/c.csv",
        "s3://bucket/landing/c.csv?endpoint_override=evil",
        "s3://evil@bucket/landing/c.csv",
        "file:///etc/passwd",
        "gs://bucket/landing/c.csv",
        "",
        ".",
    ):
        with pytest.raises(UnreadableFile, match="outside the root") as error:
            root.resolve(uri)
        assert "secret" not in str(error.value)
    assert pickle.loads(pickle.dumps(root)).__dict__ == {"uri": root.uri}


def test_a_file_is_found_as_it_is_now(tmp_path):
    root = Root(tmp_path.as_uri())
    (tmp_path / "a b.csv").write_text("12345")
    path = str(tmp_path.resolve() / "a b.csv")
    for uri in ("a b.csv", "./a b.csv", path, (tmp_path / "a b.csv").as_uri(), f"file:{path}"):
        found = root.find(uri)
        assert (found.path, found.size) == (path, 5)
        assert root.again(found) == found
        root.require_unchanged(found)


def test_a_root_that_is_a_link_holds_what_lies_behind_it(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.csv").touch()
    (tmp_path / "here").symlink_to(tmp_path / "there")
    root = Root((tmp_path / "here").as_uri())
    assert root.find("a.csv").path == str((tmp_path / "there" / "a.csv").resolve())
    assert root.find(str(tmp_path / "here" / "a.csv")).size == 0


def test_the_whole_disk_may_be_the_root(tmp_path):
    (tmp_path / "a.csv").touch()
    assert Root("file:///").find(str(tmp_path / "a.csv")).size == 0


def test_storage_is_sound_if_it_gives_all_bytes(tmp_path):
    root = Root(tmp_path.as_uri())
    (tmp_path / "a.csv.gz").write_bytes(b"x" * 10)  # not unpacked: no gzip
    found = root.find("a.csv.gz")
    assert root.is_sound(found)
    assert not root.is_sound(FoundFile(found.path, 11, found.mtime))
    assert not root.is_sound(FoundFile(str(tmp_path / "b"), 0, None))

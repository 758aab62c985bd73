"""An archive from a package of its own: one class, found by an entry point, no edit elsewhere."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from tests.manifests import make_pin
from tidemill.config import kinds
from tidemill.config.archive import ARCHIVES
from tidemill.config.loader import load_config
from tidemill.connectors.archives.contract import Archive, ArchiveReader
from tidemill.connectors.archives.opening import (
    archive_of,
    keep_metadata,
    open_reader,
    reopen_reader,
)
from tidemill.connectors.pieces import Piece
from tidemill.errors import ConfigError
from tidemill.planning.manifest import ArchivePin, SourcePin
from tidemill.planning.plan import RunRequest
from tidemill.planning.statistics import Extent
from tidemill.runtime.plans.pinning import pin_source
from tidemill.types import BEGINNING, FOREVER, TimeRange

YAML = """
streams:
  plays: {event_time: at, archive: {type: tape, reels: 3, ingest_time: at}}
pipelines:
  shows: {sql: select 1, sinks: {output: {table: marts.shows}}}
"""
AT = pa.timestamp("us", "UTC")


class TapeArchive(Archive):
    """Rows that were counted onto tape: row n at moment n."""

    type: Literal["tape"]
    reels: int

    def pin(self, catalog, base, where) -> ArchivePin:
        return ArchivePin("tape", "shelf", self.reels)

    @classmethod
    def describe(cls, pin) -> str:
        return f"{pin.snapshot} reels"

    @classmethod
    def open(cls, pin, catalog) -> "TapeReader":
        return TapeReader(pin)

    @classmethod
    def reopen(cls, pin, kept, properties, schema) -> "TapeReader":
        return TapeReader(pin)


class TapeReader(ArchiveReader):
    def __init__(self, pin: SourcePin) -> None:
        self.pin, self.reels = pin, pin.snapshot

    def schema(self) -> pa.Schema:
        return pa.schema([("at", AT)])

    def extents(self, start: int, end: int) -> list[tuple[Any, Extent]]:
        return [(None, Extent("reel", 0, self.reels - 1, self.reels, 1))]

    def read(self, piece: Piece, columns: tuple[str, ...]):
        yield pa.record_batch({"at": pa.array(range(piece.start, piece.end)).cast(AT)})


@pytest.fixture
def installed(monkeypatch):
    """As if a package with this entry point were installed."""
    point = metadata.EntryPoint("tape", f"{__name__}:TapeArchive", "tidemill.archives")
    found = metadata.EntryPoints([point])
    monkeypatch.setattr(kinds, "entry_points", lambda group: found.select(group=group))


def loaded(folder: Path):
    path = folder / "tidemill.yaml"
    path.write_text(YAML, "utf-8")
    return load_config(path)


def test_an_archive_of_a_package_is_pinned_kept_and_read(tmp_path, installed):
    config = loaded(tmp_path)
    request = RunRequest("shows", TimeRange(BEGINNING, FOREVER))
    pin = pin_source(config, None, "plays", request)
    assert pin.archive == ArchivePin("tape", "shelf", 3)
    assert archive_of(pin.archive).describe(pin.archive) == "3 reels"
    assert config.config.streams["plays"].archive.examine(None, tmp_path, "") == "shelf, 3 reels"
    keep_metadata(pin, None, tmp_path / "plays.json")
    reader = reopen_reader(pin, tmp_path / "plays.json", {})
    assert reader.schema() == open_reader(pin, None).schema()
    assert reader.columns() == {"at": "timestamp[us, tz=UTC]"} and reader.differences(0, 3) == {}
    reader.verify()
    rows = list(reader.read(Piece(None, 0, 3, 3), ("at",)))
    assert [len(batch) for batch in rows] == [3]


def test_what_an_archive_need_not_answer_has_a_harmless_answer(installed):
    pin = ArchivePin("tape", "shelf", 3)
    assert TapeArchive.age(pin, None, None) is None
    assert TapeArchive.reached(pin, None) == {}
    assert TapeArchive.newest(pin, None) == pin
    assert not TapeArchive.covers(pin, "/shelf")
    assert not TapeArchive.is_table(pin, "5")
    TapeArchive.hold(pin, None, "run")
    TapeArchive.release(pin, None, "run")


def test_mistakes_in_its_section_are_named(tmp_path, installed):
    with pytest.raises(ConfigError, match="unknown key 'reel'") as raised:
        (tmp_path / "tidemill.yaml").write_text(YAML.replace("reels", "reel"), "utf-8")
        load_config(tmp_path / "tidemill.yaml")
    assert raised.value.fix == "did you mean 'reels'?"


def test_without_the_package_the_type_is_unknown(tmp_path):
    with pytest.raises(ConfigError, match="unknown type 'tape'"):
        loaded(tmp_path)


def test_the_kinds_load_only_when_they_are_named():
    code = (
        "import sys\n"
        "from tidemill.config.archive import ARCHIVES\n"
        "assert set(ARCHIVES.names()) >= {'iceberg', 'parquet', 'delta'}\n"
        "ARCHIVES.find('delta')\n"
        "assert 'deltalake' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_pin_without_archive_is_a_log(tmp_path):
    pin = make_pin("plays")
    assert pin.location == "" and pin.snapshot is None
    assert ARCHIVES.find("iceberg").__name__ == "IcebergArchive"

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.config.loader import load_config
from tidemill.connectors.archives.parquet import ParquetReader
from tidemill.planning.plan import RunRequest
from tidemill.runtime.plans.pinning import pin_source
from tidemill.types import FOREVER, TimeRange

YAML = """\
streams:
  plays: {event_time: at, archive: {type: parquet, path: my archive, ingest_time: at}}
pipelines:
  shows: {sql: select 1, sinks: {output: {table: marts.shows}}}
"""


@pytest.mark.parametrize("folder", ["my project", "50%", "a#b", "a%20b?"])
def test_parquet_is_found_in_any_folder(tmp_path, folder):
    base = tmp_path / folder
    (base / "my archive").mkdir(parents=True)
    (base / "tidemill.yaml").write_text(YAML, "utf-8")
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, base / "my archive" / "a.parquet")
    loaded = load_config(base / "tidemill.yaml")
    request = RunRequest("shows", TimeRange(datetime(2026, 1, 1, tzinfo=UTC), FOREVER))
    pin = pin_source(loaded, None, "plays", request)
    assert [file["path"] for file in pin.archive.facts["files"]] == ["a.parquet"]
    assert ParquetReader(pin).schema() == rows.schema

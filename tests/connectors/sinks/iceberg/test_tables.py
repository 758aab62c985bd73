import pyarrow as pa
import pytest

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import SinkError

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("at", UTC), ("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path):
    return open_local(tmp_path)


@pytest.mark.parametrize(
    ("time", "by", "fields"),
    [("at", "day", ["at_day"]), ("at", "hour", ["at_hour"]), ("at", "none", []), (None, "day", [])],
)
def test_a_missing_table_is_made_with_its_namespace(catalog, time, by, fields):
    table = ensure_table(catalog, "marts.shows", SCHEMA, time, by)
    assert table.schema().column_names == ["at", "id"]
    assert [field.name for field in table.spec().fields] == fields
    assert table.properties["write.metadata.delete-after-commit.enabled"] == "false"


def test_made_again_nothing_changes(catalog):
    first = ensure_table(catalog, "marts.shows", SCHEMA, "at", "day").metadata
    assert ensure_table(catalog, "marts.shows", SCHEMA, "at", "hour").metadata == first


def test_a_table_with_rows_keeps_its_layout(catalog):
    table = ensure_table(catalog, "marts.shows", SCHEMA, None, "none")
    table.append(pa.table({"at": pa.array([0], UTC), "id": [1]}, SCHEMA))
    assert ensure_table(catalog, "marts.shows", SCHEMA, "at", "day").spec().is_unpartitioned()


@pytest.mark.parametrize(
    "schema", [[("at", UTC), ("id", pa.string())], [("at", UTC), ("id", pa.int64()), ("x", UTC)]]
)
def test_an_output_that_does_not_fit_is_refused_before_anything_runs(catalog, schema):
    ensure_table(catalog, "marts.shows", SCHEMA, "at", "day")
    with pytest.raises(SinkError, match="the pipeline's output does not fit the table") as raised:
        ensure_table(catalog, "marts.shows", pa.schema(schema), "at", "day")
    assert raised.value.where == "table marts.shows"
    assert "--into" in raised.value.fix


def test_a_type_no_table_can_hold(catalog):
    schema = pa.schema([("x", pa.duration("us"))])
    with pytest.raises(SinkError, match="the table cannot be made"):
        ensure_table(catalog, "marts.shows", schema, None, "none")
    ensure_table(catalog, "marts.shows", SCHEMA, None, "none")
    with pytest.raises(SinkError, match="does not fit the table"):
        ensure_table(catalog, "marts.shows", schema, None, "none")

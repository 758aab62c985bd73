"""A filter on live rows chooses exactly the rows that the archive's scan chooses."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connectors.archives.archives import open_local
from tests.manifests import change, make_pin
from tidemill.connectors.archives.filter_text import parse_filter
from tidemill.connectors.archives.filtering import RowFilter
from tidemill.connectors.archives.opening import LogColumns
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.errors import PlanError
from tidemill.planning.manifest import LivePin
from tidemill.rows.columns import spark_schema

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("n", pa.int32()),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("money", pa.decimal128(9, 2)),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("_reason", pa.string()),
    ]
)
MOMENT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = [
    {"id": 0},  # nothing could be decoded
    {"id": 1, "small": 1, "n": 5, "name": "DE", "ok": True, "x": 1.5, "at": MOMENT},
    {"id": 2, "small": -1, "n": None, "name": "FR", "ok": False, "x": float("nan")},
    {"id": 3, "n": -5, "name": None, "x": float("inf"), "day": date(2026, 1, 2)},
    {"id": 4, "n": 7, "name": "", "money": Decimal("1.50"), "place": {"city": "Ulm", "zip": 1}},
    {"id": 5, "n": 7, "name": "DE ", "money": Decimal("-1.50"), "place": {"city": None}},
    {"id": 6, "name": "Dé", "place": None, "_reason": "not JSON", "x": -0.0},
]
FILTERS = [
    "name = 'DE'", "name != 'DE'", "name is null", "name is not null", "name in ('DE', 'FR')",
    "name not in ('DE', 'FR')", "name like 'D%'", "not (name = 'DE')",
    "n > 5", "n <= 5", "n between 0 and 6", "small = 1", "small < 300", "ok = true",
    "x > 1.0", "x is nan", "x is not nan", "x = 0.0",
    "at >= '2026-01-01T12:00:00+00:00'", "day = '2026-01-02'", "money > 1.25", "money = 1.50",
    "place.city = 'Ulm'", "place.city is null", "place.zip = 1",
    "_reason is null", "_reason is not null and id > 3",
    "money > 1.4", "money >= 1.495", "money < 1.505", "money <= -1.5", "money in (1.5)",
    "n > 5.5", "n >= 6.5", "n < 6.5", "n <= 5.5", "n >= 7.0", "not (n > 6.5)",
    "at < '2026-01-01T13:00+01:00'", "at >= '2026-01-01T12:00Z'",
    "name = 'DE' or n = 7", "(name = 'FR' and ok = false) or (x > 1.0)", "id in (1, 2, 3)",
]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    catalog = open_local(tmp_path_factory.mktemp("filters"))
    made = ensure_table(catalog, "archive.rows", spark_schema(SCHEMA), None, "none")
    made.append(pa.Table.from_pylist(ROWS, SCHEMA))
    return made


def live(text: str) -> list[int]:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    keep = RowFilter(SCHEMA, text, "stream plays")
    assert set(keep.columns) <= set(SCHEMA.names)
    seen = pa.RecordBatch.from_arrays(
        [batch.column(name) for name in ("id", *keep.columns)], names=["row", *keep.columns]
    )
    found: list[int] = keep(seen).column("row").to_pylist()
    return found


@pytest.mark.parametrize("text", FILTERS)
def test_live_rows_are_the_archives(table, text):
    archived = table.scan(row_filter=parse_filter(text, "", table.schema())).to_arrow()
    assert live(text) == sorted(archived.column("id").to_pylist())


def test_a_value_between_two_of_the_column_chooses_as_spark_would():
    """pyiceberg alone would round 6.5 to 7, and leave the rows with 7 out."""
    assert live("n > 6.5") == live("n >= 6.5") == live("n = 7") == [4, 5]
    assert live("n < 6.5") == live("n <= 6.5") == [1, 3]
    assert live("money > 1.495") == live("money = 1.5") == [4]
    assert live("at >= '2026-01-01T12:00Z'") == [1]


@settings(max_examples=60)
@given(
    parts=st.lists(st.sampled_from(FILTERS), min_size=2, max_size=4),
    join=st.sampled_from([" and ", " or "]),
)
def test_so_are_those_of_several_filters(table, parts, join):
    text = join.join(f"({part})" for part in parts)
    archived = table.scan(row_filter=parse_filter(text, "", table.schema())).to_arrow()
    assert live(text) == sorted(archived.column("id").to_pylist())


def test_a_log_without_history_is_planned_with_a_filter_that_fits():
    form = {"kind": "json", "columns": "name string, n long"}
    live = LivePin("kafka", "t", 0, 1, 0, format=form)
    pin = make_pin("plays", live=live, where="name = 'DE'")
    LogColumns(pin).verify()
    LogColumns(change(pin, where="i is not null and _reason is null")).verify()
    with pytest.raises(PlanError, match="names the column 'nam'"):
        LogColumns(change(pin, where="nam = 'DE'")).verify()


def test_a_filter_that_does_not_fit_is_an_error_with_the_nearest_column():
    with pytest.raises(PlanError, match="names the column 'nam'") as raised:
        RowFilter(SCHEMA, "nam = 'DE'", "stream plays")
    assert raised.value.where == "stream plays"
    assert raised.value.fix == "did you mean 'name'?"
    for text, said in [("n = 'many'", "'many' is no number"), ("money > 'a'", "'a' is no number")]:
        with pytest.raises(PlanError, match=f"does not fit: .*{said}") as raised:
            RowFilter(SCHEMA, text, "stream plays")
        assert raised.value.fix.startswith("compare it with a number")

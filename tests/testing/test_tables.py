"""Reference tables of plain rows: what a project's YAML says of them, and the rows it reads."""

from datetime import UTC, datetime

import pytest

from tidemill.connectors.tables.contract import pin_table
from tidemill.errors import ConfigError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.testing import make_project, make_table

PLAYS = [{"show_id": 1, "event_ts": "2026-01-01T00:01Z"}]


def table(folder, made):
    """The rows of the table ``shows`` as a run reads them."""

    def pipeline(plays, shows):
        return plays.join(shows, "show_id")

    project = make_project(folder, pipeline, {"plays": PLAYS}, tables={"shows": made})
    return pin_table(project.loaded, "shows", open_catalog(project.loaded))[1]


def test_plain_rows_are_a_table(tmp_path):
    found = table(tmp_path, [{"show_id": 1, "title": "one"}, {"show_id": 2}])
    assert found.to_pylist() == [{"show_id": 1, "title": "one"}, {"show_id": 2, "title": None}]


def test_versions_have_times_with_a_zone(tmp_path):
    rows = [(1, "2025-01-01T01:00+01:00", 3.5), (1, "2026-01-01T00:00Z", 4.0)]
    columns = ["show_id", "since", "price"]
    found = table(tmp_path, make_table(rows, columns=columns, key="show_id", valid_from="since"))
    first, second = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert [(row["since"], row["valid_to"]) for row in found.to_pylist()] == [
        (first, second),
        (second, None),
    ]


def test_a_table_without_rows_needs_its_columns(tmp_path):
    assert table(tmp_path, make_table([], schema="show_id long, title string")).num_rows == 0


def test_what_a_run_would_refuse_is_refused(tmp_path):
    with pytest.raises(SourceError, match="not the only one of their show_id"):
        table(tmp_path, make_table([{"show_id": 1}, {"show_id": 1}], key="show_id"))
    with pytest.raises(ConfigError, match="has no value that would tell its type"):
        make_table([{"show_id": 1, "title": None}])

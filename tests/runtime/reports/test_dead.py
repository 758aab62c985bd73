"""What `dead show` tells of a dead table, also of one that an earlier version has written."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.cli.stage import T0, Stage
from tidemill.cli.main import cli
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.rows.verdict import DEAD_SCHEMA, SIDE_SCHEMA
from tidemill.runfolder.folder import RunFolder

RUN = "20260101_120000_ab12"


def row(offset: int, **told: object) -> dict[str, object]:
    at = {"ingest_time": T0, "event_time": T0, "row": f'{{"n": {offset}}}'}
    return {"source": "plays", "reason": "no event time", "partition": 0, "offset": offset, **at,
            **told}  # fmt: skip


FAILED = {"reason": "KeyError: 'a'", "operator": "process", "place": "on_row (p.py:7)"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage.make(tmp_path)
    made.run(RUN)
    return made


def fill(stage: Stage, rows: list[dict[str, object]], schema: pa.Schema) -> None:
    name = RunFolder.of(stage.project.loaded.home, RUN).read_manifest().outputs.dead_table
    table = ensure_table(open_catalog(stage.project.loaded), name, schema, None, "none")
    table.append(pa.Table.from_pylist(rows, schema))


def test_rows_are_counted_by_reason_and_place(stage: Stage) -> None:
    fill(stage, [row(0), *(row(n, **FAILED) for n in (1, 2))], DEAD_SCHEMA)
    report = stage.project.dead(RUN)
    assert [(each.operator, each.place, each.rows) for each in report.reasons] == [
        ("process", "on_row (p.py:7)", 2),
        (None, None, 1),
    ]
    assert report.dead == 3 and [each["offset"] for each in report.rows] == [0, 1, 2]
    chosen = stage.project.dead(RUN, reason="KeyError", rows=1)
    assert (chosen.dead, len(chosen.rows)) == (2, 1)


def test_a_table_of_an_earlier_version_has_no_places(stage: Stage) -> None:
    fill(stage, [row(3)], SIDE_SCHEMA)
    (reason,) = stage.project.dead(RUN).reasons
    assert (reason.operator, reason.reason, reason.rows) == (None, "no event time", 1)


def test_a_run_without_dead_rows_has_no_table(stage: Stage) -> None:
    report = stage.project.dead(RUN)
    assert (report.dead, report.rows, report.retried) == (0, (), {})


def test_people_and_programs_read_the_same(stage: Stage) -> None:
    fill(stage, [row(0), row(1, **{**FAILED, "row": "[red]"})], DEAD_SCHEMA)
    config = ("--config", str(stage.project.loaded.path))
    told = json.loads(CliRunner().invoke(cli, ["dead", "show", RUN, "--json", *config]).stdout)
    assert (told["dead"], told["reasons"][0]["rows"]) == (2, 1)
    shown = CliRunner().invoke(cli, ["dead", "show", RUN, "--rows", "1", *config]).stdout
    assert "KeyError: 'a'" in shown and "on_row (p.py:7)" in shown
    assert "reader" in shown and "and 1 more" in shown

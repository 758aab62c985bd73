"""docs/expectations.md: its YAML loads, its output is what a run prints, its Python runs."""

import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tests.cli.stage import Stage
from tests.docs.test_docs import blocks
from tidemill.cli.render import show_result
from tidemill.config.project import ProjectConfig
from tidemill.planning.judging.expectations import RowCounts, Violations, checks_of, judge
from tidemill.rows.rowtext import row_texts
from tidemill.runtime.registry import RunState, RunTotals
from tidemill.runtime.reports.results import RunResult

PAGE = (Path(__file__).parents[2] / "docs" / "expectations.md").read_text("utf-8")
RUN = "20260101_120000_ab12"
COLUMNS = {
    "output": {"show_id": "long", "window_start": "timestamp", "plays": "long"},
    "counts": {"show_id": "long", "t": "timestamp"},
    "tops": {"title": "string", "rank": "long", "t": "timestamp"},
}
SCHEMAS = {
    name: json.dumps({"fields": [{"name": n, "type": kind} for n, kind in found.items()]})
    for name, found in COLUMNS.items()
}


def pipelines():
    for text in blocks(PAGE, "yaml"):
        ((name, found),) = ProjectConfig.model_validate(yaml.safe_load(text)).pipelines.items()
        yield found, checks_of(found, SCHEMAS, name)


def test_every_yaml_is_one():
    (_, one), (_, two) = pipelines()
    assert {check.about for check in one} == {
        *("late", "dead", "rows", "not_null", "unique", "where")
    }
    assert [str(check) for check in two if check.output == "tops"] == [
        "tops: rows > 0",
        "tops: not_null title",
        "tops: where rank <= 10",
    ]


def test_the_output_is_what_a_run_prints(capsys):
    import pyarrow as pa

    (_, checks), _ = pipelines()
    start = datetime(2026, 1, 1, 7, tzinfo=UTC)
    row = {"show_id": None, "window_start": start, "plays": 3}
    sample = next(row_texts(pa.RecordBatch.from_pylist([row]), list(row)))
    broken = {check: Violations(0, 1_440) for check in checks}
    nulls = next(check for check in checks if check.about == "not_null")
    broken[nulls] = Violations(1, 1_440, (sample,))
    verdicts = judge(checks, RowCounts(117_000, 12, 0, {"output": 1_440}), broken, {})
    table = f"marts.plays_per_show__{RUN}"
    result = RunResult(
        run=RUN,
        pipeline="plays_per_show",
        state=RunState.FINISHED,
        outputs={"output": table},
        late=f"{table}__late",
        dead=f"{table}__dead",
        totals=RunTotals(24, None, None, 116_988, 12, 0, 1_440),
        slices=24,
        slices_done=24,
        seconds=9.8,
        expectations=verdicts,
    )
    show_result(result)
    assert capsys.readouterr().out.strip() == blocks(PAGE, "text")[0].strip()


def test_the_python_runs(tmp_path, capsys):
    stage = Stage.make(tmp_path)
    stage.run(RUN)
    (code,) = blocks(PAGE, "python")
    exec(code, {"project": stage.project, "run": RUN})
    assert capsys.readouterr().out == ""

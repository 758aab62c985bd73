"""docs/errors.md: its pipeline runs, and `dead show` prints what the page says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs.test_docs import blocks
from tests.sending import sent_by_value
from tidemill.cli.deadview import show_dead
from tidemill.project import load
from tidemill.testing import collect, make_log, make_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_page(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"event_ts": T0 + timedelta(minutes=n), "show": n, "likes": n, "plays": (n + 2) % 5}
        for n in range(10)
    ]
    make_project(tmp_path, lambda plays: plays, {"plays": make_log(rows)}, time="event_ts")
    path, ((section,), (code,)) = (
        tmp_path / "tidemill.yaml",
        (blocks(PAGE, "yaml"), blocks(PAGE, "python")),
    )
    told = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(yaml.safe_dump({**told, **yaml.safe_load(section)}), "utf-8")
    (tmp_path / "pipelines.py").write_text(code, "utf-8")
    project = load(path)
    with sent_by_value():
        run = project.backfill("scores", T0, T0 + timedelta(hours=1), spark=spark)
    assert len(collect(project, run).output) == 8
    show_dead(project.dead("scores"))
    _, _, printed = capsys.readouterr().out.partition("\n")
    shown = blocks(PAGE, "text")[0].rstrip().splitlines()
    for line, told in zip(shown, printed.rstrip().splitlines(), strict=True):
        assert told.startswith(line.removesuffix("…")), told

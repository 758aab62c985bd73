"""Every block of docs/python.md runs, in order, in the project that `tidemill init` writes."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bad_input.terminal import lent
from tidemill.starter.writing import write_starter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_starter(tmp_path)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    with lent(spark):
        for kind, text in BLOCKS:
            if kind == "python":
                exec(text, scope)
            else:
                assert text in capsys.readouterr().out
    said = capsys.readouterr().out
    result, frame = scope["result"], scope["frame"]
    assert repr(result) in said and f"finished {result.totals.out} " in said
    assert "there is no option 'slise' - did you mean 'slice'?" in said
    assert "  finished after " in said
    assert result.rate > 0 and result.seconds > 0 and result.left is None
    assert scope["table"].num_rows == len(frame) == result.totals.out > 0
    assert frame["window_start"].is_sorted()
    assert scope["plays"] == frame["plays"].sum()
    assert scope["first"].to_pylist() == frame.head(3).to_dicts()
    assert set(scope["two"]["show_id"]) == set(scope["events"]["show_id"].to_pylist()) == {2}
    assert len(scope["late"]) == result.totals.late > 0
    assert len(repr(scope["plan"])) < 200 and "<caption>" in scope["plan"]._repr_html_()

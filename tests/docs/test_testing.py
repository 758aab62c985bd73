"""docs/testing.md: its tests run as a user's do, in a folder of their own, with the plugin."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidemill.testing import assert_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_every_test_of_the_page_passes(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, because ``tidemill_spark`` is then the session that runs already.

    Executors cannot import the file: its functions must reach them in another way.
    """
    written = tmp_path / "test_plays.py"
    written.write_text("\n\n".join(blocks("python test")), "utf-8")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.syspath_prepend(tmp_path)
    options = ["-p", "tidemill.pytest_plugin", "-p", "no:cacheprovider", "-rP", "-c"]
    code = pytest.main([*options, "/dev/null", f"--rootdir={tmp_path}", str(written)])
    told = capfd.readouterr().out
    assert code == 0, told
    assert (
        f"{len(re.findall('^def test_', written.read_text('utf-8'), re.MULTILINE))} passed" in told
    )
    (law,) = blocks("text law")
    assert law in told
    assert spark.sparkContext._jsc is not None, "a session that ran before goes on"


def test_the_notebook_works(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "__main__"}
    (text,) = blocks("python notebook")
    *body, last = text.splitlines()
    exec("\n".join((*body, f"shown = {last}")), scope)
    assert scope["shown"]["seconds"].to_list() == [60]


def test_the_page_shows_differences_as_they_are() -> None:
    (shown,) = blocks("text")
    expected, found = [(1, 3), (3, 4)], [(1, 2), (2, 1)]
    with pytest.raises(AssertionError) as caught:
        assert_rows(found, expected, columns=["show_id", "plays"])
    assert f"{caught.value}\n" == shown

"""The pytest plugin: declared, free of charge at import, and its fixtures' contract."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_installing_the_package_is_enough() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert told["project"]["entry-points"]["pytest11"] == {"tidemill": "tidemill.pytest_plugin"}


def run_pytest(folder: Path) -> str:
    """What pytest says about a folder, with the plugin, in a process of its own."""
    program = [sys.executable, "-m", "pytest", "-q", "-p", "tidemill.pytest_plugin"]
    found = subprocess.run(
        [*program, "checks"],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_the_plugin_loads_nothing_until_a_fixture_is_used(tmp_path: Path) -> None:
    """A suite without pipelines, in the same environment, pays nothing."""
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "test_other.py").write_text(
        "import sys\n\n\n"
        "def test_other():\n"
        "    assert 'tidemill.pytest_plugin' in sys.modules\n"
        "    heavy = ('pyspark', 'pyarrow', 'pyiceberg', 'pydantic', 'polars', 'yaml')\n"
        "    assert not [name for name in heavy if name in sys.modules]\n"
    )
    assert "1 passed" in run_pytest(tmp_path)


CONFTEST = """\
import pytest


@pytest.fixture(scope="session", autouse=True)
def spark_ends_with_the_tests():
    yield
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None
"""
SHAPES = """\
def doubled(number):
    return 2 * number
"""
OWN = """\
import pytest
from pyspark.sql import functions as F
from shapes import doubled

from tidemill.errors import ConfigError
from tidemill.testing import assert_rows, make_project

ROWS = [{"n": 3, "event_ts": "2026-01-01T00:00Z"}]
SQL = "select event_ts, n from plays where n > :least"


def test_a_module_beside_the_test(tidemill_project, tmp_path):
    def code(plays):
        return plays.select(F.udf(doubled, "long")("n").alias("n"))

    first = tidemill_project(code, {"plays": ROWS})
    second = tidemill_project(SQL, {"plays": ROWS}, time="event_ts", params={"least": 2})
    assert_rows(first.replay().output, [{"n": 6}])
    assert_rows(second.replay().output, [(3,)], columns=["n"])
    with pytest.raises(ConfigError, match="there is a project already"):
        make_project(first.loaded.base, code, {"plays": ROWS})
"""


@pytest.mark.spark
def test_the_plugin_starts_a_session_whose_executors_find_modules_and_stops_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "checks").mkdir()
    for name, text in {"conftest": CONFTEST, "shapes": SHAPES, "test_own": OWN}.items():
        (tmp_path / "checks" / f"{name}.py").write_text(text)
    assert "1 passed" in run_pytest(tmp_path)

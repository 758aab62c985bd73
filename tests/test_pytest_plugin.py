"""The pytest plugin: declared, free of charge at import, and its fixtures' contract."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_installing_the_package_is_enough() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert told["project"]["entry-points"]["pytest11"] == {"tidemill": "tidemill.pytest_plugin"}


def test_the_plugin_loads_nothing_until_a_fixture_is_used(tmp_path: Path) -> None:
    """A suite without pipelines, in the same environment, pays nothing."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\n"
        "def test_other():\n"
        "    assert 'tidemill.pytest_plugin' in sys.modules\n"
        "    heavy = ('pyspark', 'pyarrow', 'pyiceberg', 'pydantic', 'polars', 'yaml')\n"
        "    assert not [name for name in heavy if name in sys.modules]\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tidemill.pytest_plugin", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed" in found.stdout

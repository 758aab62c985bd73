"""``make demo``, small: it checks its own rows."""

import sys
from pathlib import Path
from subprocess import run

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_demo(tmp_path: Path) -> None:
    """As ``make demo`` runs it, in another folder."""
    command = [sys.executable, "-m", "apps.demo", "--folder", tmp_path / "demo", "--rows", "20000"]
    done = run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal to the row") == 2

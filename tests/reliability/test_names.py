"""A container that restarts its command: the run of that name goes on, nothing is written twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bad_input.shop import YAML, Shop, events, expected, table
from tidemill.testing import assert_same_rows

pytestmark = [pytest.mark.spark, pytest.mark.kill]

COMMAND = ("run", "sums", "--start", "earliest", "--name", "live")
SLOWLY = YAML.replace(
    "    archive:\n", "    live: {type: iceberg, max_rows: 30}\n    archive:\n"
)  # so that there are several batches to die between


def start(shop: Shop, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tidemill.cli", *arguments, "--config", str(shop.path)]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return subprocess.Popen(
        command, cwd=shop.folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def kill_after_a_batch(shop: Shop) -> None:
    process = start(shop, *COMMAND)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        run = shop.project.registry.named("live")
        if run is not None and shop.project.registry.totals(run).batches >= 1:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, told


def test_a_killed_run_goes_on_under_its_name(tmp_path):
    shop = Shop.make(tmp_path, SLOWLY)
    shop.fill("logs.plays", table(events()), files=4)
    kill_after_a_batch(shop)
    run = shop.project.registry.named("live")
    assert shop.project.status("live").totals.read < 240

    again = start(shop, *COMMAND, "--until", "2026-01-01T06:00Z")
    out, told = again.communicate(timeout=240)
    assert again.returncode == 0, told
    assert out.startswith(f"run {run} (live)\n")
    assert [found.run for found in shop.project.runs()] == [run]
    found = shop.catalog.load_table("marts.sums").scan().to_arrow().to_pylist()
    assert_same_rows(found, expected())

    plain = start(shop, "run", "sums", "--start", "earliest")  # without the name: a second run
    _, told = plain.communicate(timeout=60)
    assert plain.returncode == 2
    assert f"the live run {run} of this pipeline" in told
    assert f"tidemill resume {run}" in told

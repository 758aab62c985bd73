"""The same backfill on a real Spark cluster (a master and two workers on loopback)."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from tests.reliability.scenario import RANGE, Yard

pytestmark = pytest.mark.cluster
_HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        assert process.poll() is None, "the process ended"
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """spark:// of a cluster that ships inside the PyPI package."""
    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    port, pages = free_port(), [free_port() for _ in range(3)]
    launch = [str(home / "bin" / "spark-class")]
    deploy = "org.apache.spark.deploy"
    address = ["--host", _HOST]
    commands = [
        [f"{deploy}.master.Master", *address, "--port", str(port), "--webui-port", str(pages[0])]
    ]
    commands += [
        [f"{deploy}.worker.Worker", *address, "--webui-port", str(page), "--cores", "1",
         "--memory", "1g", f"spark://{_HOST}:{port}"]
        for page in pages[1:]
    ]  # fmt: skip
    processes = []
    with (folder / "log").open("wb") as log:
        for command in commands:
            processes.append(
                subprocess.Popen([*launch, *command], env=environment, stdout=log, stderr=log)
            )
            await_port(port, processes[0])
        yield f"spark://{_HOST}:{port}"
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=30)


def test_a_cluster_gives_the_same_table(master: str, tmp_path: Path) -> None:
    yard = Yard.make(tmp_path / "yard")
    options = [*RANGE[:3], "2026-01-01T02:00Z", *RANGE[4:]]
    local = yard.run("backfill", "plays_per_show", *options)
    path = yard.folder / "tidemill.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    config["spark"] = {
        "master": master,
        "conf": {
            "spark.executor.memory": "512m",
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.default.parallelism": 2,
        },
    }
    path.write_text(yaml.safe_dump(config), "utf-8")
    remote = yard.run("backfill", "plays_per_show", *options)
    assert yard.tables(str(remote["run"])) == yard.tables(str(local["run"]))

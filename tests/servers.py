"""Servers that tests start on loopback: their jars from Maven Central, their ports, their end."""

import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

HOST = "127.0.0.1"

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemill</groupId>
  <artifactId>server-for-tests</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>{3}
    </dependency>"""


class DownloadError(Exception):
    """A server's programs are not here and cannot be had: no test that needs it can run."""


def cannot_run(reason: str, required: str = "TIDEMILL_REQUIRE_KAFKA") -> NoReturn:
    """Tests whose server cannot be had skip and say so; in CI they fail.

    They fail, too, where the variable ``required`` is set to 1.
    """
    import pytest

    if os.environ.get("CI") or os.environ.get(required) == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def fetch_jars(folder: Path, dependencies: Iterable[str], what: str) -> Path:
    """The folder with a server's jars; the first call on a machine downloads them.

    A dependency is ``group:artifact:version`` or ``group:artifact:version:classifier``. A download
    is made beside the folder and then renamed, under a lock: there is never half a one, nor two.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _download(Path(made), dependencies, what)
                (Path(made) / "jars").rename(folder)
    return folder


def _download(folder: Path, dependencies: Iterable[str], what: str) -> None:
    find_java()
    wanted = "\n".join(_dependency(*name.split(":")) for name in dependencies)
    (folder / "pom.xml").write_text(_POM.format(dependencies=wanted), "utf-8")
    command = [
        "mvn", "-B", "-U", "-Dstyle.color=never", "-f", str(folder / "pom.xml"),
        "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    except FileNotFoundError:
        raise DownloadError(
            f"mvn is not installed; the jars of {what} come from Maven Central "
            "(apt-get install maven)"
        ) from None
    except subprocess.TimeoutExpired as error:
        raise DownloadError(
            f"the jars of {what} did not arrive within {error.timeout:g} s"
        ) from None
    if done.returncode or not list(folder.glob("jars/*.jar")):
        said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
        reason = said[0].removeprefix("[ERROR] ") if said else done.stderr[-500:]
        raise DownloadError(f"the jars of {what} could not be fetched with mvn: {reason}")


def _dependency(group: str, artifact: str, version: str, classifier: str = "") -> str:
    marked = f"\n      <classifier>{classifier}</classifier>" if classifier else ""
    return _DEPENDENCY.format(group, artifact, version, marked)


def find_java() -> str:
    """The Java that servers run on."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        raise DownloadError("no java found; servers of tests need Java 17 (or set JAVA_HOME)")
    return found


def free_ports(count: int) -> list[int]:
    """Free ports below those that the system gives to outgoing connections.

    While a server is down its clients keep connecting to its port; one in the system's range
    would sooner or later be connected to itself, and then the server could not come back.
    """
    found: list[int] = []
    draw = random.SystemRandom()
    while len(found) < count:
        port = draw.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex((HOST, port)) != 0:
                found.append(port)
    return found


def dying_with_parent() -> list[str]:
    """A command before the command: on Linux it asks to be killed when its parent ends.

    A process of its own, not ``preexec_fn``: Python code between fork and exec waits forever if
    another thread (there are many beside Spark and Kafka) held a lock at the fork.
    """
    if sys.platform != "linux":
        return []
    ask = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", ask]

"""The catalogs of the campaign: SQLite, PostgreSQL, and Apache Iceberg's own REST server.

Servers run on loopback and end with this process. Where one cannot be had, an error says why.
"""

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers import HOST, DownloadError, dying_with_parent, fetch_jars, find_java, free_ports

NAMES = ("sqlite", "postgres", "rest")
REST_VERSION = "1.10.0"
_CACHE = Path(__file__).parents[2] / ".cache" / "iceberg-rest" / REST_VERSION
_REST = (
    f"org.apache.iceberg:iceberg-open-api:{REST_VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{REST_VERSION}",
    f"org.apache.iceberg:iceberg-core:{REST_VERSION}:tests",
    "org.eclipse.jetty:jetty-server:11.0.24",
    "org.eclipse.jetty:jetty-servlet:11.0.24",
    "org.xerial:sqlite-jdbc:3.46.1.0",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.16",
)
_SECONDS = 60.0


class UnavailableError(Exception):
    """A catalog's server is not on this machine and cannot be had."""


class Catalogs:
    """The catalogs that were asked for, each started once. `end` stops their servers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sections: dict[str, dict[str, Any]] = {}
        self._stops: list[Callable[[], None]] = []
        atexit.register(self.end)

    def section(self, name: str) -> dict[str, Any]:
        """``catalog:`` of a project's YAML."""
        if name not in self._sections:
            folder = self.folder / name
            folder.mkdir(parents=True)
            folder.chmod(0o755)
            uri = {"sqlite": self._sqlite, "postgres": self._postgres, "rest": self._rest}[name]
            kind = {"type": "rest"} if name == "rest" else {"type": "sql"}
            warehouse = str(folder / "warehouse")
            self._sections[name] = {"uri": uri(folder), "warehouse": warehouse, **kind}
        return self._sections[name]

    def end(self) -> None:
        while self._stops:
            self._stops.pop()()

    def _sqlite(self, folder: Path) -> str:
        return f"sqlite:///{folder}/catalog.db"

    def _postgres(self, folder: Path) -> str:
        """A cluster of its own; PostgreSQL refuses to run as root, so a root lends it a user."""
        if importlib.util.find_spec("psycopg") is None:
            raise UnavailableError("psycopg is not installed (make setup)")
        programs = find_postgres()
        (port,) = free_ports(1)
        home, owner = _postgres_home(folder)
        data = str(home / "data")
        init = [f"{programs}/initdb", "-D", data, "-A", "trust", "-U", "tidemill", "-N"]
        subprocess.run([*_as(owner), *init], check=True, stdout=subprocess.DEVNULL, cwd="/")
        with (folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                [*_as(owner), f"{programs}/postgres", "-D", data, "-p", str(port), "-h", HOST,
                 "-k", "", "-F"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        self._stops.append(lambda: _end_postgres(server, home))
        ready = [f"{programs}/pg_isready", "-h", HOST, "-p", str(port), "-q"]
        _await(lambda: subprocess.run(ready, check=False).returncode == 0, server, "PostgreSQL")
        return f"postgresql+psycopg://tidemill@{HOST}:{port}/postgres"

    def _rest(self, folder: Path) -> str:
        try:
            jars, java = fetch_jars(_CACHE, _REST, "Iceberg's REST catalog"), find_java()
        except DownloadError as error:
            raise UnavailableError(str(error)) from None
        (port,) = free_ports(1)
        settings = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
            "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        }
        with (folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                [*dying_with_parent(), java, "-Xmx256m", "-XX:+UseSerialGC",
                 "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
                 "org.apache.iceberg.rest.RESTCatalogServer"],
                env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._stops.append(lambda: _kill(server))
        uri = f"http://{HOST}:{port}"
        _await(lambda: _answers(f"{uri}/v1/config"), server, "Iceberg's REST server")
        return uri


def find_postgres() -> Path:
    """The newest PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    other = shutil.which("initdb")
    if not found and other is None:
        raise UnavailableError("PostgreSQL is not installed (apt-get install postgresql)")
    return found[-1].parent if found else Path(str(other)).parent


def _postgres_home(folder: Path) -> tuple[Path, str | None]:
    """Where the cluster lies, and who owns it if not this user."""
    if os.getuid():
        return folder, None
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        reason = "PostgreSQL does not run as root, and there is no user 'postgres'"
        raise UnavailableError(reason) from None
    home = Path(tempfile.mkdtemp(prefix="tidemill-postgres-"))  # below no folder of root's alone
    shutil.chown(home, "postgres")
    return home, "postgres"


def _as(owner: str | None) -> list[str]:
    """A command before the command: another user, and the end of this process is its end."""
    user = ["--reuid", owner, "--regid", owner, "--clear-groups"] if owner else []
    return ["setpriv", *user, "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []


def _end_postgres(server: subprocess.Popen[bytes], home: Path) -> None:
    server.send_signal(signal.SIGQUIT)
    server.wait()
    shutil.rmtree(home / "data", ignore_errors=True)


def _kill(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _await(is_up: Callable[[], bool], server: subprocess.Popen[bytes], what: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_up():
        if server.poll() is not None or time.monotonic() > deadline:
            raise UnavailableError(f"{what} did not start")
        time.sleep(0.1)

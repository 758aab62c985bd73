"""A PostgreSQL on loopback for tests: the machine's own programs, a folder of its own."""

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.faults.catalogs import Catalogs, UnavailableError
from tests.servers import cannot_run


@cache
def _server() -> dict[str, Any]:
    folder = tempfile.TemporaryDirectory()
    Path(folder.name).chmod(0o755)
    catalogs = Catalogs(Path(folder.name))
    atexit.register(folder.cleanup)
    parts = urlsplit(catalogs.section("postgres")["uri"])
    return {
        "host": parts.hostname,
        "port": parts.port,
        "database": parts.path.strip("/"),
        "user": parts.username,
    }


def postgres() -> dict[str, Any]:
    """How the server is reached, in the keys of the sink. Where there is none, tests skip."""
    try:
        return _server()
    except UnavailableError as error:
        cannot_run(str(error))

"""The page's server over a project without Spark, and a browser that is only HTTP."""

import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn

from tidemill.project import Project
from tidemill.ui.access import Token
from tidemill.ui.address import Address
from tidemill.ui.app import build
from tidemill.ui.desk import Desk
from tidemill.ui.door import FORM_TOKEN, Rules
from tidemill.ui.limits import Limits
from tidemill.ui.page import Office
from tidemill.ui.server import SETTINGS

PLENTY = Limits(burst=100_000)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Visitor:
    """A browser: it keeps its cookie, and sends what browsers send."""

    port: int
    token: str
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """One request; a header that is None is left out."""
        sent = {"Host": f"127.0.0.1:{self.port}", **self.headers}
        if self.cookie:
            sent["Cookie"] = self.cookie
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent)
            found = connection.getresponse()
            got = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, got, found.read().decode())
        finally:
            connection.close()

    def enter(self) -> "Visitor":
        """Follow the link; afterwards the cookie does."""
        found = self.ask(f"/?token={self.token}")
        assert found.status == 303, found
        self.cookie = found.headers["set-cookie"].partition(";")[0]
        return self

    def form_token(self, page: str = "/runs") -> str:
        """The token of this session's forms."""
        found = re.search(rf'name="{FORM_TOKEN}" value="([^"]+)"', self.ask(page).text)
        assert found is not None, f"{page} has no form"
        return found[1]

    def send(self, path: str, form: dict[str, Any], page: str, **headers: str) -> Answer:
        """Fill in the form of a page."""
        told = {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode({FORM_TOKEN: self.form_token(page), **form}, doseq=True)
        return self.ask(path, "POST", body, **{**told, **headers})

    def events(self, path: str, count: int = 1, seconds: float = 20) -> list[dict[str, str]]:
        """The first events of a page."""
        found: list[dict[str, str]] = []
        with self.stream(path) as answer:
            assert answer.status == 200, answer.read()
            until = time.monotonic() + seconds
            while len(found) < count and time.monotonic() < until:
                line = answer.readline().decode()
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: ")))
        return found

    @contextlib.contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """An open event stream."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie}
        sent |= {"Accept": "text/event-stream", **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path, headers=sent)
            yield connection.getresponse()
        finally:
            connection.close()


@dataclass(frozen=True)
class Site:
    """A server."""

    project: Project
    office: Office
    port: int
    token: str

    def visitor(self) -> Visitor:
        """Somebody who has not followed the link yet."""
        return Visitor(self.port, self.token)


@contextlib.contextmanager
def served(
    project: Project, *, read_only: bool = False, limits: Limits = PLENTY, token: str = "t" * 43
) -> Iterator[Site]:
    """The server in a thread, as `tidemill ui` has it in its process."""
    office = Office(Desk(Path(project.loaded.path)), limits, read_only)
    listening, address = Address("127.0.0.1", 0).listen()
    rules = Rules(address, Token(token, True), read_only, limits)
    settings = replace_settings()
    server = uvicorn.Server(uvicorn.Config(build(office, rules), **settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Site(project, office, address.port, token)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def replace_settings() -> dict[str, Any]:
    """As the command has them; open streams of a test that failed do not hold it up."""
    return {**SETTINGS, "timeout_graceful_shutdown": 1}


def tight(**limits: Any) -> Limits:
    """Limits that a test reaches."""
    return replace(PLENTY, **limits)

"""Serve the page: bind, print the link, open the browser, answer until Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.errors import ConfigError, RequestError
from tidemill.ui.access import Token
from tidemill.ui.address import Address

INSTALL = "pip install 'tidemill[ui]'"


@dataclass(frozen=True)
class Serving:
    """How the page is served."""

    config: Path
    host: str = "127.0.0.1"
    port: int = 8321
    token_file: Path | None = None
    read_only: bool = False
    opens: bool = True  # the browser


def serve(serving: Serving, say: Callable[[str], None]) -> None:
    """Answer until somebody ends it. ``say`` gets the link as its first line."""
    try:
        import uvicorn

        from tidemill.ui.app import build
        from tidemill.ui.desk import Desk
        from tidemill.ui.door import Rules
        from tidemill.ui.page import Office
    except ModuleNotFoundError as error:
        raise ConfigError(f"the page needs {error.name}", fix=INSTALL) from None
    token = choose_token(serving)
    office = Office(Desk(serving.config.absolute()), read_only=serving.read_only)
    listening, address = Address(serving.host, serving.port).listen()
    app = build(office, Rules(address, token, serving.read_only, office.limits))
    say(token.link(address.url))
    if serving.opens and address.is_loopback:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(token.link_once(address.url))
    server = uvicorn.Server(uvicorn.Config(app, **SETTINGS))
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


SETTINGS: dict[str, Any] = {
    "access_log": False,  # a request's line has the token once
    "log_config": None,
    "log_level": logging.CRITICAL,
    "server_header": False,
    "proxy_headers": False,  # who asks is whose connection it is, whatever a header says
    "lifespan": "off",
    "ws": "none",
    "loop": "asyncio",
    "http": "h11",
    "h11_max_incomplete_event_size": 16_384,
    "limit_concurrency": 200,
    "timeout_keep_alive": 15,
    "timeout_graceful_shutdown": 1,
}


def choose_token(serving: Serving) -> Token:
    """A new token; from other machines only one that somebody has chosen and kept in a file."""
    if serving.token_file is not None:
        return Token.read(serving.token_file)
    if not Address(serving.host, 0).is_loopback:
        raise RequestError(
            f"{serving.host} can be reached from other machines, and the page can start runs",
            fix="give --token-file FILE with a token of your own, or leave --host out and reach it "
            "by 'ssh -L 8321:127.0.0.1:8321'",
        )
    return Token.make()

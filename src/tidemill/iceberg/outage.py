"""Tell a catalog that does not answer now from one that refuses what it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = (10.0, 60.0)
"""To connect to a REST catalog, and for each part of its answer. pyiceberg would wait for ever."""
_PERMANENT = ("no such table", "does not exist", "password", "authentication")
"""In the text of a database's error: waiting does not mend it."""


def is_outage(error: BaseException) -> bool:
    """Whether a catalog did not answer, so that the same request may succeed later.

    It says nothing about whether a change has landed.
    """
    from pyiceberg.exceptions import ServerError, ServiceUnavailableError
    from requests.exceptions import ConnectionError as Unreachable
    from requests.exceptions import Timeout
    from sqlalchemy.exc import InterfaceError, OperationalError

    if isinstance(error, OperationalError | InterfaceError):
        return not any(word in str(error).casefold() for word in _PERMANENT)
    known = (Unreachable, Timeout, ServiceUnavailableError, ServerError)
    return isinstance(error, (*known, ConnectionError, TimeoutError))


def one_line(error: BaseException) -> str:
    """The beginning of an error's text, for a sentence."""
    text = str(error).strip()
    for words in ("Connection refused", "timed out", "Connection reset"):
        if words.casefold() in text.casefold():
            return words.lower()
    return (text.splitlines() or [type(error).__name__])[0][:300]


def with_patience(catalog: Any) -> None:
    """Give the requests of a REST catalog an end; other catalogs stay as they are."""
    session = getattr(catalog, "_session", None)
    send = getattr(session, "request", None)
    if session is None or send is None:
        return

    def request(method: str, url: str, *given: Any, **options: Any) -> Any:
        return send(method, url, *given, **_patient(options))

    session.request = request


def _patient(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**options, "timeout": options.get("timeout") or _SECONDS}

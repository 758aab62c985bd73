"""Who may use the page: the token of the link, and the sessions of browsers that had it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.errors import RequestError

_SHORTEST = 20
"""Letters of a token in a file: one that can be guessed protects nothing."""
_SESSIONS = 64
_IDLE = 12 * 3_600.0


@dataclass(frozen=True)
class Token:
    """The secret of the link. It is compared in constant time, and shown by nothing but the link.

    ``is_made`` says that it was made for this start, so that the link may hold it.
    """

    _text: str = field(repr=False)
    is_made: bool
    _once: list[str] = field(default_factory=list, repr=False)

    @classmethod
    def make(cls) -> Token:
        """A new one."""
        return cls(secrets.token_urlsafe(32), True)

    @classmethod
    def read(cls, path: Path) -> Token:
        """The token in a file that nobody else may read."""
        try:
            is_open = path.stat().st_mode & 0o077
            text = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise RequestError(
                f"the token file cannot be read: {reason}",
                where=str(path),
                fix=f"write one: (umask 077; openssl rand -base64 32 > {path.name})",
            ) from None
        if is_open:
            raise RequestError(
                "other users may read the token file", where=str(path), fix=f"chmod 600 {path}"
            )
        if len(text) < _SHORTEST or not text.isascii() or not text.isprintable():
            raise RequestError(
                f"a token has at least {_SHORTEST} plain letters in one line",
                where=str(path),
                fix=f"write one: openssl rand -base64 32 > {path.name}",
            )
        return cls(text, False)

    def fits(self, given: str) -> bool:
        """Whether somebody has the token."""
        for once in self._once:
            if hmac.compare_digest(_digest(given), _digest(once)):
                self._once.clear()
                return True
        return hmac.compare_digest(_digest(given), _digest(self._text))

    def link_once(self, address: str) -> str:
        """A link that works once: it is an argument of the browser's process, which others see."""
        self._once[:] = [secrets.token_urlsafe(32)]
        return f"{address}/?token={self._once[0]}"

    def link(self, address: str) -> str:
        """The link that is printed; a token from a file is not printed."""
        return f"{address}/?token={self._text}" if self.is_made else f"{address}/"


@dataclass
class Session:
    """A browser that had the token. ``form_token`` stands in every form that changes something."""

    key: bytes
    form_token: str
    used: float


class Sessions:
    """Open sessions by a cookie, which is no token: it is worth nothing after the next start."""

    def __init__(self) -> None:
        self._open: list[Session] = []

    def begin(self) -> str:
        """A new session; returns what its cookie holds. The oldest ones make room for it."""
        cookie = secrets.token_urlsafe(32)
        made = Session(_digest(cookie), secrets.token_urlsafe(32), time.monotonic())
        self._open = [*self._open[-_SESSIONS + 1 :], made]
        return cookie

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie. All are compared, so the time tells nothing."""
        now, digest, found = time.monotonic(), _digest(cookie or ""), None
        self._open = [each for each in self._open if now - each.used < _IDLE]
        for each in self._open:
            if hmac.compare_digest(each.key, digest):
                found = each
        if found is not None:
            found.used = now
        return found


def _digest(text: str) -> bytes:
    """Compared instead of the text: of equal length, and any text has one."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()

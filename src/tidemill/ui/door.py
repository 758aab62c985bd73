"""What every request passes before a page sees it: host, origin, token, limits; and all headers.

A request that is refused is answered here, in plain text, and no page learns of it.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.ui.access import Session, Sessions, Token
from tidemill.ui.address import Address
from tidemill.ui.limits import Limits, RequestRate

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_REFERRER = {"Referrer-Policy": "no-referrer"}
"""Of the one address that has the token. All other pages say where they come from, but only to this
server: a browser that says it to nobody gives its forms no origin, which could then not be checked.
"""
_GUESS = 20
"""A wrong token costs as much as so many requests."""
_FORM = "application/x-www-form-urlencoded"
FORM_TOKEN = "form_token"


@dataclass(frozen=True)
class Visit:
    """What the door knows of a request: whose it is, and the form that it brought."""

    session: Session
    form: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str, default: str = "") -> str:
        """One field of the form."""
        return next(iter(self.form.get(name, ())), default)


class RefusedError(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


@dataclass(frozen=True)
class Rules:
    """Whom the door lets in."""

    address: Address
    token: Token
    read_only: bool = False
    limits: Limits = field(default_factory=Limits)


class Door:
    """The outermost layer of the server."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules
        self._sessions, self._rate = Sessions(), RequestRate(rules.limits)
        self._cookie = f"tidemill_{rules.address.port}"  # cookies do not know ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                own.update(HEADERS if answer is None else {**HEADERS, **_NO_REFERRER})
            await send(message)

        request, answer = Request(scope, receive), None
        try:
            answer = self._enter(request)
            if answer is None:
                await self._admit(request)
        except RefusedError as refused:
            answer = PlainTextResponse(f"{refused.text}\n", refused.status)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _enter(self, request: Request) -> Response | None:
        """Everything that needs no session; the link's own answer, if it is the link."""
        client = request.client.host if request.client else ""
        if not self._rules.address.knows(request.headers.get("host", "")):
            raise RefusedError(421, "this is not a name of the server: open the link it printed")
        if not self._rate.take(client):
            raise RefusedError(429, "too many requests: wait a few seconds")
        if len(request.scope["path"]) + len(request.url.query) > self._rules.limits.address:
            raise RefusedError(414, "the address is too long")
        if request.method not in ("GET", "HEAD", "POST"):
            raise RefusedError(405, f"the page knows no {request.method}")
        _require_same_origin(request)
        query = dict(parse_qsl(request.url.query, keep_blank_values=True))
        if "token" not in query:
            return None
        if not self._rules.token.fits(query.pop("token")):
            self._rate.take(client, _GUESS)
            raise RefusedError(401, "this token is not the one that 'tidemill ui' printed last")
        rest = urlencode(query)
        answer = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(
            self._cookie, self._sessions.begin(), httponly=True, samesite="strict", path="/"
        )
        return answer

    async def _admit(self, request: Request) -> None:
        """Find the session, and check what would change something."""
        session = self._sessions.find(request.cookies.get(self._cookie))
        if session is None:
            raise RefusedError(401, "open the link that 'tidemill ui' printed: it has the token")
        form: dict[str, list[str]] = {}
        if request.method == "POST":
            if self._rules.read_only:
                raise RefusedError(403, "the page is read-only: it was started with --read-only")
            form = await self._read_form(request)
            given = next(iter(form.pop(FORM_TOKEN, ())), "")
            if not hmac.compare_digest(given.encode(), session.form_token.encode()):
                raise RefusedError(403, "the form is not of this session: load its page again")
        request.scope["tidemill"] = Visit(session, form)

    async def _read_form(self, request: Request) -> dict[str, list[str]]:
        limits = self._rules.limits
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != _FORM:
            raise RefusedError(415, f"a form comes as {_FORM}")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limits.body:
            raise RefusedError(413, f"a form has at most {limits.body:,} bytes")
        try:
            async with asyncio.timeout(limits.patience):
                body = await _read_body(request, limits.body)
        except TimeoutError:
            raise RefusedError(408, "the form did not arrive") from None
        try:
            pairs = parse_qsl(
                body.decode(), True, encoding="utf-8", errors="strict", max_num_fields=limits.fields
            )
        except ValueError:
            raise RefusedError(400, "the form cannot be read") from None
        form: dict[str, list[str]] = {}
        for name, value in pairs:
            form.setdefault(name, []).append(value)
        return form


async def _read_body(request: Request, most: int) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise RefusedError(413, f"a form has at most {most:,} bytes")
    return body


def _require_same_origin(request: Request) -> None:
    """A request of another site is refused; what changes something must say that it is ours."""
    own, origin = f"http://{request.headers['host']}", request.headers.get("origin")
    if origin is None and request.method == "POST":
        raise RefusedError(403, "a form that changes something must say where it comes from")
    if origin is not None and origin.lower() != own.lower():
        raise RefusedError(403, "a page of another site may not ask for this")
    site = request.headers.get("sec-fetch-site", "same-origin")
    is_link = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site not in ("same-origin", "none") and not is_link:
        raise RefusedError(403, "a page of another site may not ask for this")

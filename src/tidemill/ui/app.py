"""The server's routes: every page, and every form that changes something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from tidemill import __version__
from tidemill.ui import forms
from tidemill.ui.door import FORM_TOKEN, Door, Rules, Visit
from tidemill.ui.failures import Failure, failure_of
from tidemill.ui.limits import OpenStreams
from tidemill.ui.live import Watches
from tidemill.ui.page import Asked, Office, Page
from tidemill.ui.pages.switch import chosen, plan_facts
from tidemill.ui.sitemap import PAGES, PLAN
from tidemill.ui.views import FOLDER, Views

_EVENTS = "text/event-stream"
_SWITCHES = 200
"""Pages with a switch of which the newest choice is known."""


class Site:
    """Answers requests that have passed the door."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.views = Views(
            office.desk.redact,
            read_only=office.read_only,
            version=__version__,
            project_name=office.desk.config.parent.name,
            FORM_TOKEN=FORM_TOKEN,
        )
        self._numbers, self._newest = count(), dict[str, int]()
        self.watches = Watches(OpenStreams(office.limits))

    def routes(self) -> list[Route | Mount]:
        """Every address."""
        return [
            *(Route(path, partial(self.show, page)) for path, page in PAGES.items()),
            Route(PLAN, self.plan),
            *(
                Route(path, partial(self.change, change), methods=["POST"])
                for path, change in forms.CHANGES.items()
            ),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ]

    async def show(self, page: Page, request: Request) -> Response:
        """A page, or, for a script that asks for events, the parts of it that change."""
        is_live = _EVENTS in request.headers.get("accept", "")
        asked = Asked(dict(request.path_params), dict(request.query_params), is_live)
        if is_live:
            return await self._follow(page, asked, request)
        return await self._answer(request, lambda: page.facts(self.office, asked), page.template)

    async def plan(self, request: Request) -> Response:
        """The plan of what is chosen at the switch: a part of a page."""
        query = request.query_params
        given = {name: query.getlist(name) for name in query}

        page, number = query.get("once", ""), next(self._numbers)
        self._newest.pop(page, None)
        self._newest[page] = number
        for old in list(self._newest)[:-_SWITCHES]:
            del self._newest[old]

        def facts() -> dict[str, Any]:
            choice = chosen(self.office, request.path_params["name"], given)
            return plan_facts(self.office, choice, lambda: self._newest.get(page) == number)

        return await self._answer(request, facts, "plan.html", "plan_error.html")

    async def change(self, change: forms.Change, request: Request) -> Response:
        """Carry out a form, and go on to the page that shows what became of it."""
        visit: Visit = request.scope["tidemill"]
        names = dict(request.path_params)
        try:
            place = await run_in_threadpool(change, self.office, names, visit)
        except Exception as error:
            return self._failed(request, failure_of(error), "error.html")
        return RedirectResponse(place, 303)

    async def failed(self, request: Request, error: Exception) -> Response:
        """What no page has caught: an address that there is not."""
        if isinstance(error, HTTPException):
            told = Failure(error.status_code, f"{request.url.path}: {error.detail.lower()}")
            return self._failed(request, told, "error.html")
        return self._failed(request, failure_of(error), "error.html")

    async def _answer(
        self,
        request: Request,
        facts: Callable[[], dict[str, Any]],
        template: str,
        failing: str = "error.html",
    ) -> Response:
        def make() -> str:
            return self.views.page(template, {**self._about(request), **facts()})

        try:
            return HTMLResponse(await run_in_threadpool(make))
        except Exception as error:
            return self._failed(request, failure_of(error), failing)

    def _failed(self, request: Request, failure: Failure, template: str) -> Response:
        facts = {**self._about(request), "failure": failure, "command": None}
        return HTMLResponse(self.views.page(template, facts), failure.status)

    def _about(self, request: Request) -> dict[str, Any]:
        visit: Visit = request.scope["tidemill"]
        return {"form_token": visit.session.form_token, "path": request.url.path}

    async def _follow(self, page: Page, asked: Asked, request: Request) -> Response:
        if self.watches.streams.is_full:
            told = Failure(503, "too many pages are open", "", "close some of them")
            return self._failed(request, told, "error.html")

        def look() -> dict[str, str]:
            try:
                facts = {"form_token": "", "path": "", **page.facts(self.office, asked)}
                return {**self.views.regions(page.template, facts), "live_error": ""}
            except Exception as error:
                return {
                    "live_error": self.views.page("trouble.html", {"failure": failure_of(error)})
                }

        name = f"{request.url.path}?{request.url.query}"
        events: AsyncIterator[str] = self.watches.follow(name, look, page.every)
        return StreamingResponse(events, media_type=_EVENTS)


Handler = Callable[[Request, Exception], Awaitable[Response]]


def build(office: Office, rules: Rules) -> ASGIApp:
    """The whole server behind its door."""
    site = Site(office)
    handlers: dict[Any, Any] = {HTTPException: site.failed, Exception: site.failed}
    return Door(Starlette(routes=site.routes(), exception_handlers=handlers), rules)

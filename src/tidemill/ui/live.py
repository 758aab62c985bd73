"""Pages that change by themselves: parts of them are sent again when they have changed.

All who look at the same page share one watch: the project is asked once per tick, not per visitor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from tidemill.ui.limits import OpenStreams

_SIGN_OF_LIFE = 15.0


class Watch:
    """The parts of one page, looked at again and again while somebody watches."""

    def __init__(self, look: Callable[[], dict[str, str]], every: float) -> None:
        self._look, self._every = look, every
        self._parts: dict[str, tuple[int, str]] = {}
        self._version, self.watchers = 0, 0
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def changes(self) -> AsyncIterator[dict[str, str]]:
        """What has changed since the last time; an empty one now and then, as a sign of life."""
        seen = 0
        self.watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._go_on())
        try:
            while True:
                await self._wait_for_news(seen)
                parts = {name: html for name, (at, html) in self._parts.items() if at > seen}
                seen = self._version
                yield parts
        finally:
            self.watchers -= 1
            if not self.watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _wait_for_news(self, seen: int) -> None:
        async with self._news:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SIGN_OF_LIFE):
                    await self._news.wait_for(lambda: self._version > seen)

    async def _go_on(self) -> None:
        while True:
            parts = await run_in_threadpool(self._look)
            changed = {
                name: html
                for name, html in parts.items()
                if self._parts.get(name, (0, None))[1] != html
            }
            if changed:
                async with self._news:
                    self._version += 1
                    self._parts.update(
                        {name: (self._version, html) for name, html in changed.items()}
                    )
                    self._news.notify_all()
            await asyncio.sleep(self._every)


class Watches:
    """The watches of all pages that somebody looks at."""

    def __init__(self, streams: OpenStreams) -> None:
        self.streams = streams
        self._open: dict[str, Watch] = {}

    async def follow(
        self, page: str, look: Callable[[], dict[str, str]], every: float
    ) -> AsyncIterator[str]:
        """Server-sent events with the parts of a page."""
        with self.streams.one_more():
            watch = self._open.setdefault(page, Watch(look, every))
            try:
                yield "retry: 2000\n\n"
                async for parts in watch.changes():
                    yield f"data: {json.dumps(parts)}\n\n" if parts else ": still here\n\n"
            finally:
                if not watch.watchers:
                    self._open.pop(page, None)

"""A real Chromium, Debian's, driven by Playwright; its own downloads are not used."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers import cannot_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = (1280, 900), (390, 844)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """The browser, without a window."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        cannot_run(
            "BROWSER TESTS DID NOT RUN: no chromium (apt-get install chromium)",
            "TIDEMILL_REQUIRE_BROWSER",
        )
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=arguments)
        yield made
        made.close()


@contextmanager
def opened(
    browser: "Browser", size: tuple[int, int] = WIDE, scheme: str = "light"
) -> Iterator["Page"]:
    """A page of a fresh profile. A script's error, a dialog or a refused script fails the test."""
    context: BrowserContext = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
    )
    page, trouble = context.new_page(), list[str]()

    def heard(message: "ConsoleMessage") -> None:
        if message.type == "error" and "status of 4" not in message.text:
            trouble.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
    page.set_default_timeout(30_000)
    try:
        yield page
        assert not trouble
    finally:
        context.close()

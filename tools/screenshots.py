"""Take the pictures of docs/ui.md: a browser before the project of ``tidemill init``.

``python tools/screenshots.py`` writes docs/ui-*.png. It starts Spark once.
"""

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, opened  # noqa: E402
from tests.ui.test_browser import PIPELINE, make_production  # noqa: E402

from tidemill.starter.writing import write_starter  # noqa: E402

DOCS = ROOT / "docs"
DAY = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")
SIZE = (1080, 760)


def tidemill(folder: Path, *words: str) -> str:
    """A command in the project's folder; returns what it prints."""
    command = [sys.executable, "-m", "tidemill.cli", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@contextmanager
def served(folder: Path):
    """The page's server; yields its link."""
    command = [sys.executable, "-m", "tidemill.cli", "ui", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(20)


def take(page: Page, name: str) -> None:
    """One picture of what is in the window."""
    page.screenshot(path=DOCS / f"ui-{name}.png")


def main() -> None:
    """All pictures."""
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        folder = Path(made) / "shop"
        write_starter(folder)
        tidemill(folder, "backfill", PIPELINE, *DAY, "--slice", "1h", "--name", "january")
        run = tidemill(folder, "runs", "--json").split('"run": "')[1].split('"')[0]
        make_production(folder, run)
        with served(folder) as link, opened(browser, SIZE) as page:
            take_all(page, link, run)


def take_all(page: Page, link: str, run: str) -> None:
    """The pictures of a project with a finished run and a production that differs."""
    page.goto(link)
    base = page.url.rstrip("/")
    page.goto(f"{base}/pipelines/{PIPELINE}")
    page.get_by_text("More: filters").click()
    page.get_by_label("slice").fill("1h")
    page.get_by_text("More: filters").click()
    expect(page.locator("#plan")).to_contain_text("--slice=1h", timeout=60_000)
    expect(page.locator("#plan")).to_have_attribute("aria-busy", "false")
    take(page, "switch")
    page.goto(f"{base}/runs/{run}")
    take(page, "run")
    page.goto(f"{base}/runs/{run}/review")
    page.get_by_role("button", name="Compare with production").click()
    expect(page.locator(".match")).to_be_visible(timeout=60_000)
    take(page, "review")


if __name__ == "__main__":
    main()

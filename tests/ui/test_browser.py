"""The page in a real browser: the link, what it looks like, and a wrong table that gets right."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE, WIDE, chromium, opened
from tests.ui.conftest import PAGES, RUN
from tidemill import load
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.iceberg.catalog import open_catalog
from tidemill.runtime.registry import RunState
from tidemill.starter.writing import write_starter

SPARK_STARTS = 180_000
PIPELINE = "plays_per_show"


def test_only_the_link_opens_the_page(site, browser):
    with opened(browser) as page:
        base = f"http://127.0.0.1:{site.port}"
        page.goto(base)
        expect(page.locator("body")).to_contain_text("open the link")
        page.goto(f"{base}/?token={site.token}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert page.url == f"{base}/"
        page.goto(f"{base}/runs")
        expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"]
)
def test_every_page_fits_and_is_live(site, browser, size, scheme):
    """No error, no script of a row, nothing wider than the window, and events arrive."""
    with opened(browser, size, scheme) as page:
        page.goto(f"http://127.0.0.1:{site.port}/?token={site.token}")
        for path in PAGES:
            page.goto(f"http://127.0.0.1:{site.port}{path}")
            if "where=" not in path and "/late" not in path and "/rows" not in path:
                expect(page.locator("body[data-live=yes]")).to_be_attached()
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size[0], path
            assert page.locator("main").count() == 1 and page.locator("h1").count() == 1
            unnamed = page.locator("input:not([type=hidden]), select, textarea")
            for field in unnamed.all():
                assert field.evaluate("each => each.labels.length > 0"), path


def test_what_one_does_the_others_see(site, hostile, browser):
    given_up = "20260101_000000_cccc"
    hostile.run(given_up)
    hostile.project.registry.set_state(given_up, RunState.STOPPED)
    with opened(browser) as page:
        page.goto(f"http://127.0.0.1:{site.port}/?token={site.token}")
        page.goto(f"http://127.0.0.1:{site.port}/runs/{given_up}")
        expect(page.locator("#live_status")).to_contain_text("stopped")
        page.evaluate("window.stays = true")
        hostile.project.cancel(given_up)
        expect(page.locator("#live_status .badge")).to_have_text("cancelled")
        assert page.evaluate("window.stays"), "the page was not loaded again"


def test_publishing_wants_the_runs_id(site, browser):
    with opened(browser) as page:
        page.goto(f"http://127.0.0.1:{site.port}/?token={site.token}")
        page.goto(f"http://127.0.0.1:{site.port}/runs/{RUN}/review?look=publish")
        expect(page.locator("#look")).to_contain_text("fix:")
        assert page.locator("[data-expect]").count() == 0, "what is refused cannot be confirmed"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that `tidemill init` writes."""
    folder = tmp_path_factory.mktemp("shop")
    write_starter(folder)
    return folder


@pytest.fixture
def link(shop: Path) -> Iterator[str]:
    """The link that the command prints."""
    command = [sys.executable, "-m", "tidemill.cli", "ui", "--no-open", "--port", "0"]
    process = subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(20)


def make_production(folder: Path, run: str) -> None:
    """Production without the plays of one show, and with too many of another."""
    project = load(folder / "tidemill.yaml")
    rows = pl.from_arrow(project.rows(run).to_arrow())
    assert isinstance(rows, pl.DataFrame)
    wrong = rows.filter(pl.col("show_id") != 3).with_columns(
        plays=pl.col("plays") + (pl.col("show_id") == 2).cast(pl.Int64)
    )
    shadow = project.status(run).outputs["output"]
    catalog = open_catalog(project.loaded)
    schema = catalog.load_table(shadow).schema().as_arrow()
    table = ensure_table(catalog, f"marts.{PIPELINE}", schema, "window_start", "day")
    table.append(wrong.to_arrow().cast(schema))


def decide(page: Page, action: str, run: str) -> None:
    """Look at what an action would do, type the run's id, and do it."""
    page.get_by_role("button", name=f"What would {action} do?").click()
    button = page.locator("#look").get_by_role("button", name=action.capitalize(), exact=True)
    expect(button).to_be_disabled()
    page.locator("[data-expect]").fill(run)
    button.click()
    first = page.locator("#live_history tbody tr").first
    expect(first).to_contain_text(action)
    expect(first).to_contain_text(run)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_wrong_table_gets_right(shop, link, browser):
    """Start a backfill at the switch, pause it, watch it finish, compare, publish, revert."""
    with opened(browser) as page:
        page.goto(link)
        page.get_by_role("link", name=PIPELINE, exact=True).first.click()
        page.get_by_label("to", exact=True).fill("2026-01-02T00:00Z")
        page.get_by_text("More: filters").click()
        page.get_by_label("slice").fill("2h")
        page.get_by_label("rate").fill("8000")
        expect(page.locator("#plan")).to_contain_text("--slice=2h", timeout=SPARK_STARTS)
        expect(page.locator("#plan")).to_contain_text("No risks found")
        page.get_by_role("button", name="Start").click()
        expect(page).to_have_url(re.compile(r"/runs/\d{8}_"), timeout=SPARK_STARTS)
        run = page.url.rsplit("/", 1)[-1]
        page.evaluate("window.stays = true")
        badge = page.locator("#live_status .badge")
        expect(page.locator("#live_charts table tbody tr")).not_to_have_count(
            0, timeout=SPARK_STARTS
        )
        assert page.evaluate("window.stays"), "batches appear without a reload"
        page.get_by_role("button", name="Pause").click()
        expect(badge).to_have_text("paused", timeout=60_000)
        expect(page.locator("#live_status")).to_contain_text("It does not move: it is paused")
        page.get_by_label("rows/s").fill("off")
        page.get_by_role("button", name="Set rate").click()
        page.get_by_role("button", name="Resume").click()
        expect(badge).to_have_text("finished", timeout=120_000)
        log = shop / ".tidemill" / "runs" / run / "command.log"
        assert log.exists(), "what the command prints is kept in the run's folder"
        make_production(shop, run)
        page.get_by_role("link", name="Review").click()
        page.get_by_role("button", name="Compare with production").click()
        expect(page.locator(".match")).to_be_visible(timeout=60_000)
        expect(page.locator(".match")).not_to_contain_text("100.0")
        assert page.locator("svg.chart").count() == 1
        decide(page, "publish", run)
        assert rows_of_show(shop, 3) > 0, "the rows that production lacked are there"
        decide(page, "revert", run)
        assert rows_of_show(shop, 3) == 0


def rows_of_show(folder: Path, show: int) -> int:
    """How many rows production has of a show."""
    project = load(folder / "tidemill.yaml")
    return len(project.rows(f"marts.{PIPELINE}").to_arrow(f"show_id = {show}"))


def test_without_a_browser_the_tests_say_so(monkeypatch):
    """They skip loudly; where a browser is required, as in CI, that is a failure."""
    monkeypatch.setattr("tests.browser.shutil.which", lambda name: None)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("TIDEMILL_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="BROWSER TESTS DID NOT RUN"), chromium():
        pass
    monkeypatch.setenv("TIDEMILL_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="BROWSER TESTS DID NOT RUN"), chromium():
        pass


def test_enter_in_a_field_plans_and_starts_nothing(site, hostile, browser):
    before = len(hostile.project.registry.runs())
    with opened(browser) as page:
        page.goto(f"http://127.0.0.1:{site.port}/?token={site.token}")
        page.goto(f"http://127.0.0.1:{site.port}/pipelines/pipeline")
        page.get_by_label("to", exact=True).fill("not a time")
        page.get_by_label("to", exact=True).press("Enter")
        expect(page.locator("#plan")).to_contain_text("is not a time")
        assert page.url.endswith("/pipelines/pipeline")
        page.get_by_label("Live from now on").check()
        expect(page.locator("#plan")).to_contain_text("tidemill run pipeline")
        expect(page.get_by_label("to", exact=True)).to_be_hidden()
    assert len(hostile.project.registry.runs()) == before

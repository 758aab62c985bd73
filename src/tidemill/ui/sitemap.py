"""Which page is at which address, and how often its parts are looked at again."""

from __future__ import annotations

from tidemill.ui.page import Page
from tidemill.ui.pages import overview, review, rows, run, runs, start, states, switch

PAGES = {
    "/": Page("overview.html", overview.facts, 2.0),
    "/runs": Page("runs.html", runs.facts, 2.0),
    "/runs/{run}": Page("run.html", run.facts, 1.0),
    "/runs/{run}/review": Page("review.html", review.facts, 2.0),
    "/runs/{run}/rows": Page("rows.html", rows.facts, 30.0),
    "/runs/{run}/late": Page("late.html", rows.late_facts, 30.0),
    "/runs/{run}/state": Page("state.html", states.facts, 10.0),
    "/pipelines/{name}": Page("pipeline.html", switch.facts, 5.0),
    "/starts/{key}": Page("start.html", start.facts, 0.5),
}
PLAN = "/pipelines/{name}/plan"

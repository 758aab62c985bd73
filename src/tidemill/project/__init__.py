"""What the CLI, the page and a user's Python call: load, plan, backfill, resume, runs, status."""

from tidemill.planning.requests import Until, request
from tidemill.project.facade import Project, load
from tidemill.runtime.reports.activity import Activity
from tidemill.runtime.reports.results import Progress, RunResult

__all__ = ["Activity", "Progress", "Project", "RunResult", "Until", "load", "request"]

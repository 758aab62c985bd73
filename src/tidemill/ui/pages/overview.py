"""*Overview*: every pipeline with its live run, backfills in progress, what failed; the streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.project import Project, RunResult
from tidemill.runtime.registry import RunState
from tidemill.ui.page import Asked, Facts, Office

if TYPE_CHECKING:
    from tidemill.archive.overview import ArchiveInfo
    from tidemill.runtime.registry import RunRecord

_GOING = 20
_FAILED = 5
_LOOKED = 40
_POINTS = 60


@dataclass
class Standing:
    """A pipeline as it stands now."""

    name: str
    is_known: bool = True  # the YAML has it; archive runs and old pipelines have runs alone
    live: RunResult | None = None
    backfills: list[RunResult] = field(default_factory=list)
    failed: list[RunResult] = field(default_factory=list)
    last: RunRecord | None = None
    pace: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class StreamStanding:
    """A stream, and what its archive holds; or why that cannot be said."""

    name: str
    archive: ArchiveInfo | None
    trouble: str = ""


def facts(office: Office, asked: Asked) -> Facts:
    """All pipelines and streams."""
    project = office.desk.project
    standings = {name: Standing(name) for name in project.config.pipelines}
    records = project.registry.runs()
    for record in records:
        standings.setdefault(record.pipeline, Standing(record.pipeline, False)).last = record
    going = [each for each in records if each.state in (RunState.RUNNING, RunState.PLANNED)]
    for record in going[-_GOING:]:
        _place(project, standings[record.pipeline], record)
    for record in [each for each in records[-_LOOKED:] if each.state is RunState.FAILED][-_FAILED:]:
        standings[record.pipeline].failed.insert(0, project.status(record.run))
    return {
        "command": office.command("runs", "--last", "10"),
        "pipelines": list(standings.values()),
        "streams": [_stream(office, name) for name in project.config.streams],
        "has_runs": bool(records),
    }


def _place(project: Project, standing: Standing, record: RunRecord) -> None:
    """Put a run that goes on, or died, where it belongs."""
    status = project.status(record.run)
    if status.state is RunState.FAILED:
        standing.failed.insert(0, status)
    elif record.mode == "backfill":
        standing.backfills.insert(0, status)
    else:
        standing.live = status
        found = project.batches(record.run, _POINTS)
        standing.pace = [each.read / each.seconds if each.seconds else 0.0 for each in found]


def _stream(office: Office, name: str) -> StreamStanding:
    try:
        found = office.desk.archive(name)
    except TidemillError as error:
        return StreamStanding(name, None, error.message)
    return StreamStanding(name, found)

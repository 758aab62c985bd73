"""*Runs*: the newest ones, of a pipeline or in a state."""

from __future__ import annotations

from tidemill.runtime.registry import RunState
from tidemill.ui.page import Asked, Facts, Office

_SHOWN = 50


def facts(office: Office, asked: Asked) -> Facts:
    """As many runs as were asked for, the newest first."""
    project = office.desk.project
    pipeline, state = asked.text("pipeline"), asked.text("state")
    last = asked.count("last", _SHOWN, office.limits.runs)
    found = project.runs(pipeline, state, last)
    words = [
        *(("--pipeline", pipeline) if pipeline else ()),
        *(("--state", state) if state else ()),
    ]
    known = {each.pipeline for each in project.registry.runs()} | set(project.config.pipelines)
    return {
        "command": office.command("runs", *words, "--last", str(last)),
        "runs": found[::-1],
        "pipelines": sorted(known),
        "states": [str(each) for each in RunState],
        "pipeline": pipeline,
        "state": state,
        "last": last,
        "more": min(last * 4, office.limits.runs) if len(found) == last else None,
        "example": next(iter(project.config.pipelines), "PIPELINE"),
    }

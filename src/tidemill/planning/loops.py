"""A pipeline must not read what it writes: neither a topic nor a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemill.config.pipeline import SourceConfig
from tidemill.config.places import find_loop, written_places
from tidemill.errors import PlanError

if TYPE_CHECKING:
    from tidemill.config.project import ProjectConfig
    from tidemill.planning.plan import RunRequest


def check_loops(config: ProjectConfig, request: RunRequest, sources: Iterable[str]) -> None:
    """Refuse a pipeline whose output, late or dead rows go to where its sources are read from.

    ``sources`` are all that its code reads. A run would never end, or read its rows back later.
    """
    pipeline = config.pipelines[request.pipeline]
    names = [(pipeline.sources.get(name) or SourceConfig()).stream or name for name in sources]
    streams = {name: config.streams[name] for name in names if name in config.streams}
    loop = find_loop(streams, written_places(pipeline, request.into))
    if loop is not None:
        raise PlanError(loop, where=f"pipeline {request.pipeline}", fix="write elsewhere")

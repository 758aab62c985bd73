"""A pipeline must not read what it writes: neither a topic nor a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemill.config.pipeline import SourceConfig
from tidemill.config.places import find_loop, topic_places, written_tables
from tidemill.config.sink import KafkaSink
from tidemill.errors import PlanError

if TYPE_CHECKING:
    from tidemill.config.project import ProjectConfig
    from tidemill.planning.plan import BackfillRequest


def check_loops(config: ProjectConfig, request: BackfillRequest, sources: Iterable[str]) -> None:
    """Refuse a pipeline whose output, late or dead rows go to where its sources are read from.

    ``sources`` are all that its code reads. A run would never end, or read its rows back later.
    """
    pipeline = config.pipelines[request.pipeline]
    where = f"pipeline {request.pipeline}"
    names = [(pipeline.sources.get(name) or SourceConfig()).stream or name for name in sources]
    streams = {name: config.streams[name] for name in names if name in config.streams}
    loop = find_loop(streams, written_tables(pipeline, request.into))
    if loop is not None:
        raise PlanError(
            f"the pipeline writes the table {loop[1]!r}, the archive of its source {loop[0]!r}: it "
            "would read its own rows",
            where=where,
            fix="write into another table",
        )
    for name, sink in pipeline.sinks.items():
        if not isinstance(sink, KafkaSink):
            continue
        topic = request.into or sink.topic
        written = topic_places(sink.brokers, topic)
        if any(stream.live and written & stream.live.reads for stream in streams.values()):
            raise PlanError(
                f"the sink {name!r} writes the topic {topic!r}, which the pipeline reads",
                where=where,
                fix="write into another topic",
            )

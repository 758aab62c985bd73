"""Whether two names in the YAML name the same place: one table, however it is written."""

from collections.abc import Iterable, Mapping

from tidemill.config.pipeline import PipelineConfig
from tidemill.config.sink import Place
from tidemill.config.stream import StreamConfig

_QUOTES = "`\"'"


def table_key(name: str) -> tuple[str, ...]:
    """The table that a name stands for, to compare: without quotes, spaces and upper case.

    Some catalogs tell ``Plays`` and ``plays`` apart, others (Glue, Hive) and file systems do not.
    Two names that are one table in any of them count as one.
    """
    return tuple(part.strip().strip(_QUOTES).strip().casefold() for part in name.split("."))


def table_of(stream: StreamConfig) -> str | None:
    """The table of the catalog that is the stream's archive; None if it has no such archive."""
    found = None if stream.archive is None else stream.archive.as_table()
    return None if found is None else found.table


def is_archived(stream: StreamConfig) -> bool:
    """Whether 'tidemill archive run' can follow the stream's log into its archive."""
    archive = None if stream.archive is None else stream.archive.as_table()
    return (
        archive is not None
        and stream.live is not None
        and stream.live.archived_log is not None
        and archive.partition is not None
        and archive.offset is not None
    )


def shared_archive(streams: dict[str, StreamConfig]) -> tuple[str, str, str] | None:
    """Two streams of different topics with one archive table, one of which is archived; the table.

    Two streams may read one table in two ways; but a table follows one log: its snapshots say at
    which offset that log goes on, and offsets of another log mean nothing there.
    """
    first: dict[tuple[str, ...], str] = {}
    for name, stream in streams.items():
        table = table_of(stream)
        log = None if stream.live is None else stream.live.archived_log
        if table is None or log is None:
            continue
        other = first.setdefault(table_key(table), name)
        beside = streams[other].live
        is_other = beside is not None and beside.archived_log != log
        if is_other and (is_archived(stream) or is_archived(streams[other])):
            return other, name, table
    return None


def read_places(stream: StreamConfig) -> frozenset[Place]:
    """The places that a stream is read from, to compare with those that sinks write."""
    found: set[Place] = set()
    table = table_of(stream)
    if table is not None:
        found.add(("table", *table_key(table)))
    return frozenset(found if stream.live is None else found | stream.live.reads)


def topic_places(brokers: str, topic: str) -> frozenset[Place]:
    """A topic as each of its brokers has it: two lists that share a broker are one cluster."""
    return frozenset(("topic", each.strip().casefold(), topic) for each in brokers.split(","))


def find_loop(
    streams: Mapping[str, StreamConfig],
    pipeline: PipelineConfig,
    sources: Iterable[str],
    into: str | None = None,
) -> str | None:
    """What is wrong if one of the pipeline's sources is read from a place that it writes.

    Such a run would never end, or read its own rows back later.
    """
    written: dict[Place, str] = {}
    for name, target in targets(pipeline, into).items():
        written |= pipeline.sinks[name].writes(target)
    names = (pipeline.source(name).stream or name for name in sources)
    for stream in (name for name in names if name in streams):
        for place in sorted(read_places(streams[stream]) & written.keys()):
            return (
                f"the pipeline writes {written[place]}, from which its source {stream!r} is read: "
                "it would read its own rows"
            )
    return None


def targets(pipeline: PipelineConfig, into: str | None, shadow: str = "") -> dict[str, str]:
    """The name of the place that each output is written to: its own, a shadow, or ``into``."""
    named = named_by_into(pipeline)
    return {
        name: into
        if into is not None and name == named
        else f"{sink.target}{shadow if sink.has_shadow else ''}"
        for name, sink in pipeline.sinks.items()
    }


def named_by_into(pipeline: PipelineConfig) -> str | None:
    """The output whose place ``--into`` names: the only one without a shadow, or the only one."""
    bare = [name for name, sink in pipeline.sinks.items() if not sink.has_shadow]
    candidates = bare or list(pipeline.sinks)
    return candidates[0] if len(candidates) == 1 else None


def shared_sinks(pipelines: Mapping[str, PipelineConfig], name: str) -> dict[str, list[str]]:
    """The places that a pipeline writes and others write too, each with those other pipelines."""
    found: dict[str, list[str]] = {}
    for other, config in pipelines.items():
        written = {place for sink in config.sinks.values() for place in sink.writes(sink.target)}
        for sink in pipelines[name].sinks.values() if other != name else ():
            shared = [text for place, text in sink.writes(sink.target).items() if place in written]
            if shared:  # the table itself comes before those of its late and dead rows
                found.setdefault(shared[0], []).append(other)
    return found

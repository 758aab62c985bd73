"""Whether two names in the YAML name the same place: one table, however it is written."""

from collections.abc import Iterable

from tidemill.config.pipeline import PipelineConfig
from tidemill.config.sink import IcebergSink
from tidemill.config.stream import IcebergArchive, StreamConfig

_QUOTES = "`\"'"


def table_key(name: str) -> tuple[str, ...]:
    """The table that a name stands for, to compare: without quotes, spaces and upper case.

    Some catalogs tell ``Plays`` and ``plays`` apart, others (Glue, Hive) and file systems do not.
    Two names that are one table in any of them count as one.
    """
    return tuple(part.strip().strip(_QUOTES).strip().casefold() for part in name.split("."))


def topic_places(brokers: str, topic: str) -> frozenset[tuple[str, ...]]:
    """A topic as each of its brokers has it: two lists that share a broker are one cluster."""
    return frozenset(("topic", each.strip().casefold(), topic) for each in brokers.split(","))


def is_archived(stream: StreamConfig) -> bool:
    """Whether 'tidemill archive run' can follow the stream's log into its archive."""
    archive = stream.archive
    return (
        isinstance(archive, IcebergArchive)
        and stream.live is not None
        and stream.live.archived_log is not None
        and archive.partition is not None
        and archive.offset is not None
    )


def shared_archive(streams: dict[str, StreamConfig]) -> tuple[str, str] | None:
    """Two streams of different topics that have one archive table, one of which is archived.

    Two streams may read one table in two ways; but a table follows one log: its snapshots say at
    which offset that log goes on, and offsets of another log mean nothing there.
    """
    first: dict[tuple[str, ...], str] = {}
    for name, stream in streams.items():
        log = None if stream.live is None else stream.live.archived_log
        if log is None or not isinstance(stream.archive, IcebergArchive):
            continue
        other = first.setdefault(table_key(stream.archive.table), name)
        beside = streams[other].live
        is_other = beside is not None and beside.archived_log != log
        if is_other and (is_archived(stream) or is_archived(streams[other])):
            return other, name
    return None


def find_loop(streams: dict[str, StreamConfig], tables: Iterable[str]) -> tuple[str, str] | None:
    """The first of the streams whose archive is one of the tables, and that table's name."""
    written = {table_key(table): table for table in tables}
    for name, stream in streams.items():
        if isinstance(stream.archive, IcebergArchive):
            found = written.get(table_key(stream.archive.table))
            if found is not None:
                return name, found
    return None


def written_tables(pipeline: PipelineConfig, into: str | None = None) -> list[str]:
    """The tables that runs of a pipeline write, shadows aside: outputs, late and dead rows."""
    tables = [sink.table for sink in pipeline.sinks.values() if isinstance(sink, IcebergSink)]
    if into is not None and len(tables) == len(pipeline.sinks):
        tables.append(into)
    return [*tables, *(f"{table}__{side}" for table in tables for side in ("late", "dead"))]

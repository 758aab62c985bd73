"""Whether two names in the YAML name the same place: one table, however it is written."""

from collections.abc import Iterable

from tidemill.config.pipeline import PipelineConfig
from tidemill.config.sink import IcebergSink
from tidemill.config.stream import KafkaLive, StreamConfig

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
    """Whether 'tidemill archive run' can follow the stream's topic into its archive."""
    archive = None if stream.archive is None else stream.archive.as_table()
    return (
        archive is not None
        and isinstance(stream.live, KafkaLive)
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
        if table is None or not isinstance(stream.live, KafkaLive):
            continue
        other = first.setdefault(table_key(table), name)
        beside = streams[other].live
        assert isinstance(beside, KafkaLive)
        if beside.topic != stream.live.topic and (
            is_archived(stream) or is_archived(streams[other])
        ):
            return other, name, table
    return None


def find_loop(streams: dict[str, StreamConfig], tables: Iterable[str]) -> tuple[str, str] | None:
    """The first of the streams whose archive is one of the tables, and that table's name."""
    written = {table_key(table): table for table in tables}
    for name, stream in streams.items():
        table = table_of(stream)
        found = None if table is None else written.get(table_key(table))
        if found is not None:
            return name, found
    return None


def written_tables(pipeline: PipelineConfig, into: str | None = None) -> list[str]:
    """The tables that runs of a pipeline write, shadows aside: outputs, late and dead rows."""
    tables = [sink.table for sink in pipeline.sinks.values() if isinstance(sink, IcebergSink)]
    if into is not None and len(tables) == len(pipeline.sinks):
        tables.append(into)
    return [*tables, *(f"{table}__{side}" for table in tables for side in ("late", "dead"))]

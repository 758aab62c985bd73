"""Plan a feed of files: what is pinned of it, and what it cannot do."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.config.stream import FilesLive
from tidemill.connectors.logs.files.root import Root
from tidemill.errors import ConfigError, PlanError, nearest
from tidemill.planning.feed import EASE
from tidemill.planning.manifest import FeedPin, LivePin
from tidemill.planning.plan import Beginning
from tidemill.records.decoding import Format, arrow_schema
from tidemill.rows.columns import INGEST_TIME, OFFSET, PARTITION
from tidemill.runfolder.lag import read_lag
from tidemill.runfolder.offset_log import latest_entry
from tidemill.types import micros_of

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.logs.kafka.log import KafkaLog, LogState
    from tidemill.planning.manifest import Manifest, SourcePin
    from tidemill.runfolder.folder import RunFolder

EVENT = "event"
"""What ``ingest_time:`` says if rows carry no other time than the event's."""


def pin_feed(
    loaded: LoadedConfig,
    described: SourcePin,
    live: FilesLive,
    begin: Beginning | None,
    trigger: int,
) -> SourcePin:
    """What a source reads of a feed. It has no history, whatever archive the stream has beside."""
    where = f"stream {described.stream}"
    if begin is Beginning.HISTORY:
        raise PlanError(
            "the stream's files are read on request, and where history ends in them nobody says",
            where=where,
            fix="leave --from out, and request the files of that time; 'tidemill backfill' reads "
            "an archive:, if the stream has one",
        )
    _refuse_order(described, where)
    _require_root(loaded, described.stream)
    form = Format("json", live.schema_, zone=described.zone)
    own = None if live.ingest_time == EVENT else live.ingest_time
    _check_columns(form, live, own, where)
    slack = None if live.slack is None else micros_of(live.slack)
    home = LivePin(
        kind="files",
        location=live.requests.topic,
        slack=micros_of(live.requests.slack),
        max_rows=live.max_rows,
        trigger=trigger,
        format=asdict(form),
        feed=FeedPin(own, live.format, slack),
    )
    return replace(
        described,
        archive=None,
        ingest_time=INGEST_TIME,
        partition=PARTITION,
        offset=OFFSET,
        lateness=described.lateness + EASE,
        live=home,
    )


def _refuse_order(pin: SourcePin, where: str) -> None:
    if pin.order == "position":
        raise PlanError(
            "order: position is for logs; the rows of a file have no order of their own",
            where=where,
            fix="leave order: out",
        )


def _check_columns(form: Format, live: FilesLive, own: str | None, where: str) -> None:
    columns = arrow_schema(form)
    if own is not None and own not in columns.names:
        raise ConfigError(
            f"live.ingest_time names the column {own!r}, which live.schema lacks",
            where=where,
            fix=f"{nearest(own, columns.names)} Or write 'event' for the event time",
        )
    if own is not None and not pa.types.is_timestamp(columns.field(own).type):
        raise ConfigError(
            f"live.ingest_time {own!r} is not a timestamp",
            where=where,
            fix="declare it as timestamp",
        )
    nested = [field.name for field in columns if pa.types.is_nested(field.type)]
    if live.format == "csv" and nested:
        raise ConfigError(
            f"column {nested[0]!r}: CSV has no arrays, maps or structs",
            where=where,
            fix="declare it as string",
        )


def feed_root(loaded: LoadedConfig, stream: str) -> str | None:
    """The URI below which a feed's files lie; None for other streams."""
    live = loaded.config.streams[stream].live
    if not isinstance(live, FilesLive):
        return None
    if live.root is not None and "://" in live.root:
        return live.root
    folder = (loaded.base / (live.root or ".")).resolve()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}", where=f"stream {stream}", fix="correct live.root"
        )
    return folder.as_uri()


def _require_root(loaded: LoadedConfig, stream: str) -> None:
    root = Root(feed_root(loaded, stream) or "")
    try:
        _ = root.base
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the root {root.shown} cannot be opened: {error}",
            where=f"stream {stream}",
            fix="correct live.root: a folder, or a URI that Arrow knows (s3://, gs://, abfs://, …)",
        ) from None


def require_slack(pins: dict[str, SourcePin]) -> None:
    """Beside others, a feed must say how old rows may be: else it holds them while it is idle."""
    streams = {pin.stream for pin in pins.values()}
    for pin in pins.values():
        feed = pin.live.feed if pin.live is not None else None
        if feed is not None and feed.slack is None and len(streams) > 1:
            raise PlanError(
                "beside other streams a feed of files needs a slack: while no file is requested "
                "nothing else tells how far it has come",
                where=f"stream {pin.stream}",
                fix="add live.slack: longer than from a row's ingest time to the request for its "
                "file, for example '70 min' for hourly files",
            )


def is_feed(pin: SourcePin) -> bool:
    """Whether the source reads files on request."""
    return pin.live is not None and pin.live.feed is not None


def has_feed(manifest: Manifest) -> bool:
    """Whether a source of the run is a feed of files."""
    return any(is_feed(pin) for pin in manifest.sources.values())


def is_past(folder: RunFolder, manifest: Manifest, moment: int) -> bool:
    """Whether a run has all that came before a moment.

    Of a feed that is every request made before it, whatever the times of its rows.
    """
    entry = latest_entry(folder.checkpoint)
    reached = {} if entry is None else entry.slowest()
    for name, pin in manifest.sources.items():
        if is_feed(pin):
            lag = read_lag(folder.path, name)
            reached[name] = moment - 1 if lag is None or lag.done is None else lag.done
    return all(reached.get(name, moment - 1) >= moment for name in manifest.sources)


def first_frontier(log: KafkaLog, state: LogState, begin: Beginning, pin: SourcePin) -> int:
    """The frontier of a run that begins in this log, of rows or of requests."""
    from tidemill.connectors.logs.kafka.slices import first_moment

    assert pin.live is not None
    if pin.live.feed is None:
        return first_moment(log, state, begin.value, pin.live.slack)
    from tidemill.connectors.logs.files.slices import first_reach

    return first_reach(log, state, begin.value, pin.live.slack, pin.live.feed.slack)


def first_positions(
    log: KafkaLog, state: LogState, begin: Beginning, pin: SourcePin, frontier: int
) -> dict[str, int]:
    """Where a run enters a log: at rows that are not before the frontier, at requests of now."""
    assert pin.live is not None
    moment = frontier if pin.live.feed is None else state.clock - pin.live.slack
    found = state.low if begin is Beginning.EARLIEST else log.ends_at(moment, state)
    return {str(number): at for number, at in sorted(found.items())}

"""Plan a run that goes on live: where every source leaves history, where it enters the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.archive.progress import Reached, frontier_of, name_of, topic_of
from tidemill.config.places import table_of
from tidemill.config.stream import FilesLive, KafkaLive
from tidemill.connectors.archives.opening import archive_of
from tidemill.errors import PlanError, SourceError
from tidemill.iceberg.catalog import load_table
from tidemill.planning.manifest import Leg, LivePin, SourcePin
from tidemill.planning.plan import Beginning
from tidemill.runtime.plans.feeds import first_frontier, first_positions, pin_feed, require_slack
from tidemill.runtime.plans.logs import client_settings, kafka_pin, live_home
from tidemill.runtime.plans.pinning import describe_source, pin_source
from tidemill.types import MILLISECOND, from_micros, micros_of, show_instant, to_micros

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.logs.kafka.log import KafkaLog, LogState
    from tidemill.planning.plan import BackfillRequest


def pin_live(
    loaded: LoadedConfig,
    catalog: Catalog,
    source: str,
    request: BackfillRequest,
    trigger: timedelta,
) -> SourcePin:
    """What a source reads, first of history if there is any, then live."""
    described = describe_source(loaded, request.pipeline, source, request)
    stream = loaded.config.streams[described.stream]
    live = live_home(loaded, described.stream)
    pause, table = micros_of(trigger), table_of(stream)
    if isinstance(live, FilesLive):
        return pin_feed(loaded, described, live, request.live, pause)
    if isinstance(live, KafkaLive):
        home = kafka_pin(loaded, described.stream, live, pause)
    else:
        assert table is not None
        slack = micros_of(live.slack)
        home = LivePin("iceberg", table, slack, live.max_rows, pause)
    if (table is not None and catalog.table_exists(table)) or home.kind == "iceberg":
        return replace(pin_source(loaded, catalog, request.pipeline, source, request), live=home)
    if request.live is Beginning.HISTORY:
        raise PlanError(
            "the stream has no archive yet, so there is no history to begin with",
            where=f"stream {described.stream}",
            fix=f"'tidemill archive run {described.stream}' makes one; or leave --from out",
        )
    return replace(described, live=home)


def place(
    loaded: LoadedConfig, catalog: Catalog, begin: Beginning, pins: dict[str, SourcePin], clock: int
) -> dict[str, SourcePin]:
    """The pins with the place at which their live part begins.

    ``clock`` (µs) was read before they were pinned: what came since is not in their snapshots.
    """
    require_slack(pins)
    logs = {name: open_log(loaded, pin) for name, pin in pins.items() if is_kafka(pin)}
    states = {name: log.look_now() for name, log in logs.items()}
    placed = {
        name: _with_topic(pin, states[name]) if name in states else pin
        for name, pin in pins.items()
    }
    if begin is Beginning.HISTORY:
        legs = {name: archive_leg(catalog, pin, clock) for name, pin in placed.items()}
        for name, state in states.items():
            require_seam(placed[name], legs[name], state)
    else:
        legs = _live_legs(catalog, begin, placed, logs, states=states, clock=clock)
    return {name: replace(pin, leg=legs[name]) for name, pin in placed.items()}


def is_kafka(pin: SourcePin) -> bool:
    """Whether the live home is a topic, be it of rows or of requests."""
    return pin.live is not None and pin.live.kind in ("kafka", "files")


def open_log(loaded: LoadedConfig, pin: SourcePin) -> KafkaLog:
    """The topic of a source."""
    from tidemill.connectors.logs.kafka.log import KafkaLog

    assert pin.live is not None
    return KafkaLog(client_settings(loaded, pin.stream), pin.live.location)


def _with_topic(pin: SourcePin, state: LogState) -> SourcePin:
    assert pin.live is not None
    return replace(pin, live=replace(pin.live, topic=state.topic))


def archive_leg(catalog: Catalog, pin: SourcePin, clock: int) -> Leg:
    """History up to the archive's frontier in the pinned snapshot; live goes on right there.

    ``clock`` (µs) was read before the snapshot was chosen.
    """
    assert pin.archive is not None
    reached = archive_of(pin.archive).reached(pin.archive, catalog)
    require_same_topic(pin, reached, pin.location)
    seam = frontier_of(reached)
    if seam is None and not is_kafka(pin):
        assert pin.live is not None
        seam = (clock - pin.live.slack) // MILLISECOND * MILLISECOND
    if seam is None:
        raise PlanError(
            f"{pin.location} does not say how far it follows the log, so there is no seam",
            where=f"stream {pin.stream}",
            fix=f"let 'tidemill archive run {pin.stream}' write the archive; "
            "'tidemill backfill' needs no seam",
        )
    return Leg(
        seam=seam,
        archive=pin.archive,
        positions={str(number): found.next for number, found in sorted(reached.items())},
        topic=topic_of(reached),
    )


def require_same_topic(pin: SourcePin, reached: dict[int, Reached], table: str) -> None:
    """The archive must follow this stream's own topic, as its snapshots say."""
    followed = name_of(reached)
    if pin.live is None or pin.live.kind != "kafka" or followed in (None, pin.live.location):
        return
    raise SourceError(
        f"the table {table} follows the topic {followed!r}, not {pin.live.location!r}: "
        "its offsets are those of another log",
        where=f"stream {pin.stream}",
        fix="give the stream an archive table of its own: another archive.table in the YAML; "
        f"or correct live.topic, if it is {followed!r}",
    )


def require_seam(pin: SourcePin, leg: Leg, state: LogState) -> None:
    """The log must still hold what comes right after the archive. Never a gap."""
    if leg.topic is not None and leg.topic != state.topic:
        raise SourceError(
            "the topic was deleted and made anew since it was archived, or it is one of another "
            "cluster: the archive's offsets are those of another log",
            where=f"stream {pin.stream}",
            fix="archive the new topic into a new table: another archive.table in the YAML",
        )
    gaps = {
        number: (leg.positions.get(str(number), 0), low - 1)
        for number, low in sorted(state.low.items())
        if low > leg.positions.get(str(number), 0)
    }
    if gaps:
        lost = "; ".join(
            f"partition {number} lacks the offsets {first} to {last}"
            for number, (first, last) in gaps.items()
        )
        raise SourceError(
            f"the log no longer holds the seam at {show_instant(from_micros(leg.seam))}: {lost}",
            where=f"stream {pin.stream}",
            gaps=gaps,
            fix=f"'tidemill archive run {pin.stream}' must follow the topic more closely than its "
            "retention; rows that neither has are lost, and --from cannot begin before them",
        )


def _live_legs(
    catalog: Catalog,
    begin: Beginning,
    pins: dict[str, SourcePin],
    logs: dict[str, KafkaLog],
    *,
    states: dict[str, LogState],
    clock: int,
) -> dict[str, Leg]:
    """One frontier for all sources; each enters its log at the first row that is not before it."""
    fronts = []
    for name, pin in pins.items():
        if name in logs:
            fronts.append(first_frontier(logs[name], states[name], begin, pin))
        else:
            fronts.append(_tail_front(catalog, pin, begin, clock))
    frontier = min(fronts) // MILLISECOND * MILLISECOND
    legs = {}
    for name, pin in pins.items():
        if name not in logs:
            legs[name] = Leg(frontier, pin.archive)
            continue
        positions = first_positions(logs[name], states[name], begin, pin, frontier)
        legs[name] = Leg(frontier, positions=positions)
    return legs


def _tail_front(catalog: Catalog, pin: SourcePin, begin: Beginning, clock: int) -> int:
    from tidemill.connectors.logs.tail import table_frontier, table_start

    assert pin.live is not None
    table = load_table(catalog, pin.location, f"stream {pin.stream}")
    end = table_frontier(table.metadata, pin.snapshot, clock, pin.live.slack)
    return table_start(table, pin, end) if begin is Beginning.EARLIEST else end


def live_span(
    begin: Beginning, needed: datetime, low: int | None, pins: dict[str, SourcePin]
) -> tuple[int, int]:
    """From where to where history is read: to the last seam; (f, f) if it is not read at all."""
    seams = [pin.leg.seam for pin in pins.values() if pin.leg is not None]
    if begin is not Beginning.HISTORY:
        return min(seams), min(seams)
    start = to_micros(needed) if low is None else max(to_micros(needed), low)
    return min(start, *seams), max(seams)

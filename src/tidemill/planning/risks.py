"""What a plan should say before anything runs: where the range or the data may surprise."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from tidemill.planning.manifest import SourcePin, SourceTimes, TablePin
from tidemill.planning.ranges import Margins
from tidemill.planning.statistics import SourceStatistics
from tidemill.types import TimeRange, from_micros, show_duration, show_instant

_EXPIRY_SHARE = 0.8


def range_risks(
    needed: TimeRange, now: datetime, statistics: Mapping[str, SourceStatistics]
) -> Iterable[str]:
    """The archive may end before the input does."""
    if needed.end > now:
        yield (
            f"the range needs input until {show_instant(needed.end)}, which has not happened yet; "
            "its last rows are not complete"
        )
    yield from empty_risks(needed, statistics)
    for name, found in statistics.items():
        if found.span and from_micros(found.span[1]) + timedelta(hours=1) < min(needed.end, now):
            yield (
                f"{name} ends at {show_instant(from_micros(found.span[1]))}, before the input "
                f"that the range needs ({show_instant(needed.end)})"
            )


def empty_risks(needed: TimeRange, statistics: Mapping[str, SourceStatistics]) -> Iterable[str]:
    """A source may have no rows at all where others do."""
    for name, found in statistics.items():
        if found.span is None:
            yield f"{name} has no rows in {needed}"


def margin_risks(
    margins: Margins, warm_up: timedelta | None, look_ahead: timedelta | None
) -> Iterable[str]:
    """What the user said about the margins is kept in sight, above all where it is too little."""
    needed = (None, None) if margins.computed is None else margins.computed
    sides = ("start", "end")
    for name, given, need, side in zip(
        ("warm_up", "look_ahead"), (warm_up, look_ahead), needed, sides, strict=True
    ):
        if given is None:
            continue
        if need is not None and given < need:
            yield (
                f"{name} is {show_duration(given)} because you said so, and the pipeline needs "
                f"{show_duration(need)}: rows at the range's {side} may differ from those of a "
                f"live run; leave {name} out, and it is computed"
            )
        else:
            yield f"{name} is {show_duration(given)} because you said so; it is not computed"


def allowance_risks(allowed: Iterable[str]) -> Iterable[str]:
    """Operators used against the advice."""
    for name in allowed:
        yield f"{name} is allowed by the YAML, and can give other rows in a backfill than live"


def callback_risks(before_commit: str | None, outputs: Iterable[str]) -> Iterable[str]:
    """``outputs``: those whose rows are seen before the commit."""
    for name in outputs if before_commit is not None else ():
        yield (
            f"before_commit {before_commit} cannot hold back the output {name!r}: a topic has no "
            "commit, and the batch's messages are in it when the function is called"
        )


def rounding_risks(rounded: Iterable[str]) -> Iterable[str]:
    """Sums of floating point numbers that Spark computes, in whatever order rows come."""
    for name in rounded:
        yield (
            f"{name} is added up by Spark in floating point, in an order that depends on how the "
            "input was cut: its last digits can differ between two runs; cast the column to a "
            "decimal, divide a sum of whole numbers by their count, or use tidemill.windows(…), "
            "whose sums and means are exact"
        )


def expiry_risks(
    pins: Mapping[str, SourcePin], ages: Mapping[str, tuple[timedelta, timedelta]]
) -> Iterable[str]:
    """A snapshot close to expiry; ``ages`` are (age, maximum age) by source."""
    for name, (age, limit) in ages.items():
        if age > limit * _EXPIRY_SHARE:
            yield (
                f"the snapshot {pins[name].snapshot} of {pins[name].location} is "
                f"{show_duration(timedelta(days=age.days, seconds=age.seconds))} old and snapshots "
                f"may expire after {show_duration(limit)}; a run tags it, a plan does not"
            )


def table_risks(tables: Mapping[str, TablePin], is_live: bool) -> Iterable[str]:
    """A reference table whose rows say nothing of time is joined as it is now, or was at start."""
    for name, pin in tables.items():
        every = pin.section.get("refresh") if is_live else None
        if "valid_from" not in pin.section:
            seen = f"as it is when it is read, every {every}" if every else "as it is now"
            yield (
                f"the table {name} is joined {seen}, whatever the time of a row: a backfill and a "
                "live run can give other rows; keep its old rows with the time from which each "
                "holds, name it in valid_from:, and join with tidemill.as_of(…)"
            )
        elif is_live and not every:
            yield (
                f"the table {name} is read once, when the run starts, and versions that come later "
                "are not seen; say refresh: in tables:"
            )


def sharing_risks(shared: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Places that other pipelines of the YAML write too."""
    for place, others in shared.items():
        names = ", ".join(others)
        yield (
            f"{place} is written by {names}, too: live runs and --into would mix the rows of both, "
            "and nobody could tell them apart; give each pipeline its own"
        )


def zone_risks(sources: Mapping[str, tuple[SourceTimes, Mapping[str, str]]]) -> Iterable[str]:
    """A zone that is given for times which carry their own: the types of all columns tell."""
    for name, (times, columns) in sources.items():
        kind = columns.get(times.event_time, "")
        if times.zone != "UTC" and ("tz" in kind or "TZ" in kind):
            yield (
                f"{name}: zone: {times.zone} has no effect, because {times.event_time} ({kind}) "
                "carries its own zone; leave zone: out, or correct the times where they are written"
            )


def describe_lateness(pin: SourcePin, statistics: SourceStatistics) -> str:
    """What file statistics tell of late rows, without reading any."""
    bounded = [extent for extent in statistics.extents if extent.event is not None]
    if not statistics.extents or len(bounded) < len(statistics.extents):
        return "not known from statistics"
    suspect = [
        e for e in bounded if e.event is not None and e.event[0] < e.first - pin.times.lateness
    ]
    if not suspect:
        return "no file can hold a late row"
    oldest = max(e.last - e.event[0] for e in suspect if e.event is not None)
    return (
        f"{len(suspect)} of {len(bounded)} files may hold events older than lateness "
        f"{show_duration(timedelta(microseconds=pin.times.lateness))}; the oldest by up to "
        f"{show_duration(timedelta(microseconds=oldest // 60_000_000 * 60_000_000))}"
    )

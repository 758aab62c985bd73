"""What follows from what was found: names, the window, the range, and what a user should know."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from tidemill.starter.own_data.delays import Delays, show_delay, show_share
from tidemill.starter.own_data.looking import Found
from tidemill.starter.own_data.times import DATE, OFTEN
from tidemill.types import show_duration, show_instant

_WINDOWS = (
    (timedelta(hours=2), timedelta(minutes=1), "1 minute"),
    (timedelta(days=3), timedelta(minutes=10), "10 minutes"),
    (timedelta(days=90), timedelta(hours=1), "1 hour"),
)
_LONGEST = (timedelta(days=1), "1 day")
_OUTLIERS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TAKEN = {"F", "DataFrame", "pipeline"}


@dataclass(frozen=True)
class Note:
    """Something to check, in whole sentences, and what it is about: a key of the YAML, mostly."""

    about: str
    text: str


@dataclass(frozen=True)
class Draft:
    """A project over an archive, before it is written."""

    found: Found

    @cached_property
    def stream(self) -> str:
        """The stream's name, which is also the parameter's: from the folder or the table."""
        place = next(str(value) for key, value in self.found.section.items() if key != "type")
        last = re.split(r"[/.]", place.rstrip("/"))[-1]
        return identifier(last, "events")

    @cached_property
    def pipeline(self) -> str:
        """The pipeline's name, which is also the function's."""
        by = self.found.columns.key or self._window[1].replace("1 ", "").replace(" ", "_")
        return f"{self.stream}_per_{identifier(by, 'key')}"

    @cached_property
    def _window(self) -> tuple[timedelta, str]:
        first, last = self.found.usual
        for span, width, text in _WINDOWS:
            if last - first <= span:
                return width, text
        return _LONGEST

    @property
    def window(self) -> str:
        """The width of the windows, as Spark reads it."""
        return self._window[1]

    @cached_property
    def has_outliers(self) -> bool:
        """Whether a few rows lie far away from all others: the range leaves them out."""
        (first, last), (low, high) = self.found.span, self.found.usual
        return last - first > _OUTLIERS * (high - low) + timedelta(days=2)

    @cached_property
    def range(self) -> tuple[datetime, datetime]:
        """The output times of a first backfill: all windows that can have rows, and whole ones."""
        (first, last), (low, high) = self.found.span, self.found.usual
        delays = self.found.times.delays
        if self.has_outliers:
            first, last = low - (high - low) / 20, high + (high - low) / 20
        elif delays is not None:
            first, last = first - delays.lateness, last + delays.skew
        width = self._window[0]
        start = _EPOCH + (first - _EPOCH) // width * width
        return start, _EPOCH - (_EPOCH - last - timedelta(microseconds=1)) // width * width

    def command(self, verb: str) -> str:
        """A command that works with the project."""
        start, end = map(show_instant, self.range)
        return f"tidemill {verb} {self.pipeline} --from {start} --to {end}"

    @cached_property
    def notes(self) -> list[Note]:
        """What a user should check."""
        times, found = self.found.times, []
        if not times.has_ingest:
            found.append(Note("ingest_time", _without_ingest(times.event, times.others)))
        elif not times.is_zoned(times.ingest):
            text = f"The times of {times.ingest} carry no zone: an ingest time is then UTC."
            found.append(Note("ingest_time", text))
        for name, reason in times.unfit.items():
            text = f"{name} cannot be the ingest time, which every row must have: {reason}."
            found.append(Note("ingest_time", text))
        if times.delays is not None:
            found += [Note("lateness", text) for text in _about_delays(times.delays)]
        if times.shift is not None:
            found.append(Note("zone", _shifted(times.event, times.shift, times.zone)))
        elif not times.is_zoned(times.event):
            found.append(Note("zone", _without_zone(times.event, times.has_ingest)))
        if times.without_event:
            share = show_share(times.without_event)
            text = f"{share} of the rows have no {times.event}: they go to the run's dead table."
            found.append(Note("event_time", text))
        for near in times.nearly:
            if near.kind != DATE:
                found.append(Note("event_time", f"The column {near.advice}."))
        if self.has_outliers:
            first, last = map(show_instant, self.found.span)
            found.append(
                Note(
                    "range",
                    f"The times reach from {first} to {last}, but nearly all rows lie within the "
                    "range of the commands: the others probably have wrong clocks.",
                )
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """As ``init --json`` prints it."""
        found, times, columns = self.found, self.found.times, self.found.columns
        start, end = map(show_instant, self.range)
        delays = times.delays
        return {
            "archive": found.section,
            "rows": found.rows,
            "files": found.files,
            "looked_at": found.looked_at,
            "event_time": times.event,
            "ingest_time": times.ingest if times.has_ingest else None,
            "zone": times.zone,
            "times": times.candidates,
            "nearly_times": {near.column: near.kind for near in times.nearly},
            "delays": None if delays is None else _delays_json(delays),
            "partition": columns.partition,
            "offset": columns.offset,
            "region": columns.region,
            "key": columns.key,
            "measure": columns.measure,
            "window": self.window,
            "stream": self.stream,
            "pipeline": self.pipeline,
            "from": start,
            "to": end,
            "notes": [note.text for note in self.notes],
        }


def identifier(text: str, otherwise: str) -> str:
    """A name that Python, SQL and Iceberg take."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    if not name or name[0].isdigit():
        name = f"{otherwise}_{name}".rstrip("_")
    return f"{name}_" if keyword.iskeyword(name) or name in _TAKEN else name


def _delays_json(delays: Delays) -> dict[str, Any]:
    lengths = {"p50": delays.p50, "p99": delays.p99, "p99.9": delays.p999, "max": delays.longest}
    return {
        "rows": delays.rows,
        **{f"{name}_seconds": length.total_seconds() for name, length in lengths.items()},
        "lateness": show_duration(delays.lateness),
        "skew": show_duration(delays.skew),
        "late_share": delays.late,
        "future_share": delays.future,
    }


def _about_delays(delays: Delays) -> list[str]:
    found = []
    if delays.p50 > timedelta(hours=12):
        found.append(
            f"Half of the rows came {show_delay(delays.p50)} after their event, or later: the "
            "archive was probably loaded in bulk. A backfill is right all the same; live, windows "
            f"would wait for the lateness of {show_duration(delays.lateness)}."
        )
    if delays.future > 0.001:
        found.append(
            f"{show_share(delays.future)} of the rows have an event time more than "
            f"{show_duration(delays.skew)} after their ingest time: they go to the run's late "
            "table with the reason 'future'. Is the zone right?"
        )
    return found


def _shifted(event: str, shift: timedelta, zone: str) -> str:
    if shift < timedelta(0):
        return (
            f"The times of {event} carry no zone and are taken as UTC, but nearly all lie about "
            f"{show_duration(-shift)} before the ingest time: if they are local times, say so, for "
            "example zone: America/New_York, and make lateness shorter."
        )
    return (
        f"The times of {event} carry no zone, and most lie about {show_duration(shift)} after the "
        f"ingest time: they are local times, so 'zone: {zone}' was written. Name the real zone, "
        "which may have summer time: for example Europe/Berlin."
    )


def _without_zone(event: str, has_ingest: bool) -> str:
    text = f"The times of {event} carry no zone: they are taken as UTC. "
    if has_ingest:
        return text + "If they are local times, say zone: Europe/Berlin or the like."
    return (
        text + "If they are local times, windows are in local time, too, though they say UTC; to "
        "have instants, write the archive again with a zone."
    )


def _without_ingest(event: str, others: dict[str, Delays]) -> str:
    text = (
        f"No column tells when the log accepted a row (its ingest time), so {event} stands for it "
        "and lateness is 0: every row counts as on time, and a backfill has all rows. What would "
        "have come late in a live run, it cannot tell."
    )
    for name, delays in others.items():
        if delays.ahead >= OFTEN:
            text += (
                f" {name} was not taken, because {show_share(delays.ahead)} of the rows have an "
                f"event time after it. If it is that time, say --ingest-time {name}."
            )
            continue
        text += (
            f" If {name} is that time (in half of the rows it is {show_delay(delays.p50)} or less "
            f"after {event}), say --ingest-time {name}."
        )
    return text

"""Leaf values: durations, instants, ranges. No Spark, no I/O.

Inside offsets, manifests and file names a moment is an integer of microseconds since the epoch
(UTC); everywhere a person or a Python caller sees it, it is a ``datetime`` with a zone.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from tidemill.errors import ConfigError

MILLISECOND = 1_000
SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
"""The infinite frontier: the planned end of a bounded run. Far from every real event time and
far from the limits of Spark's and Arrow's timestamps."""


class Mode(StrEnum):
    """How a run gets its rows. Only `planning` and `project` may look at it."""

    LIVE = "live"
    BACKFILL = "backfill"
    HYBRID = "hybrid"
    CATCH_UP = "catch-up"  # hybrid, for a live run that it meets


@dataclass(frozen=True)
class TimeRange:
    """A half-open range of time, ``[start, end)``, both with a zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Refuse an empty or reversed range, and naive datetimes, at once."""
        for name, value in (("start", self.start), ("end", self.end)):
            if value.tzinfo is None:
                raise ConfigError(
                    f"the {name} {value.isoformat()} has no zone",
                    fix="write 2026-01-01T00:00Z, or +01:00 for a local zone",
                )
        if self.start >= self.end:
            raise ConfigError(
                f"the range is empty: from {show_instant(self.start)} is not before "
                f"to {show_instant(self.end)}",
                fix="--from must be earlier than --to; the range includes --from, excludes --to",
            )

    def __contains__(self, moment: datetime) -> bool:
        """Whether the moment lies in the range, the end excluded."""
        return self.start <= moment < self.end

    def __str__(self) -> str:
        return f"[{show_instant(self.start)}, {show_instant(self.end)})"


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch, exact (no float on the way)."""
    return micros_of(moment - EPOCH)


def from_micros(micros: int) -> datetime:
    """The inverse of :func:`to_micros`."""
    return EPOCH + timedelta(microseconds=micros)


def micros_of(length: timedelta) -> int:
    """A duration in microseconds, exact."""
    return (length.days * 86_400 + length.seconds) * SECOND + length.microseconds


FOREVER_MICROS = to_micros(FOREVER)
BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
"""Before every real time: the start of an output that has none."""


def quoted(name: str) -> str:
    """A column's plain name, dots and all, as Spark takes it for one column."""
    return "`" + name.replace("`", "``") + "`"


_UNITS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "secs": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "mins": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hr": 3_600_000, "hrs": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
    "w": 604_800_000, "week": 604_800_000, "weeks": 604_800_000,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")
_ISO = re.compile(
    r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_LONGEST = timedelta(days=365_000)


def parse_duration(text: object) -> timedelta:
    """A duration as people write it: ``10 min``, ``1h30m``, ``PT15M``, ``0``.

    Whole milliseconds only: Spark's watermark has no finer grain. At most a thousand years, so
    that sums with real times stay within the calendar.
    """
    if isinstance(text, timedelta):
        millis = Decimal(micros_of(text)) / MILLISECOND
    elif text in (0, "0") and text is not False:  # YAML's no
        millis = Decimal(0)
    elif isinstance(text, str):
        millis = _duration_millis(text.strip())
    else:
        raise _bad_duration(text)
    if millis < 0 or millis != int(millis):
        raise ConfigError(
            f"the duration {text!r} is not a whole, non-negative number of milliseconds",
            fix="write for example '10 min', '1h', '250 ms' or 'PT15M'",
        )
    if millis > _LONGEST // timedelta(milliseconds=1):
        raise ConfigError(f"the duration {text!r} is too long", fix="write 1000 years or less")
    return timedelta(milliseconds=int(millis))


def _duration_millis(text: str) -> Decimal:
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        weeks, days, hours, minutes, seconds = (Decimal(part or 0) for part in iso.groups())
        return ((weeks * 7 + days) * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1_000
    total, end = Decimal(0), 0
    for part in _PART.finditer(text):
        unit = _UNITS.get(part[2].lower())
        if unit is None or part.start() != end:
            raise _bad_duration(text)
        total += Decimal(part[1]) * unit
        end = part.end()
    if end == 0 or end != len(text):
        raise _bad_duration(text)
    return total


def _bad_duration(text: object) -> ConfigError:
    return ConfigError(
        f"{text!r} is not a duration",
        fix="write for example '10 min', '1h', '250 ms' or 'PT15M'; a number needs its unit",
    )


def show_duration(length: timedelta) -> str:
    """The shortest exact way to write a duration that :func:`parse_duration` reads back."""
    millis = micros_of(length) // MILLISECOND
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        count, millis = divmod(millis, size)
        if count:
            parts.append(f"{count}{unit}")
    if millis:
        parts.append(f"{millis}ms")
    return " ".join(parts) or "0"


def show_seconds(seconds: float) -> str:
    """A time that something takes, as people say it: ``13.3 s``, ``2m 05s``, ``3h 12m``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02d}m"
    return f"{hours // 24}d {hours % 24:02d}h"


_DATE = len("2026-01-01")


def parse_instant(text: str) -> datetime:
    """A moment with its zone said: ``2026-01-01T00:00Z``, ``2026-01-01 00:00+01:00``."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} is not a time",
            fix="write an ISO 8601 time with a zone, for example 2026-01-01T00:00Z",
        ) from None
    said = text.strip()
    said = said if len(said) > _DATE else f"{said}T00:00"
    raise ConfigError(
        f"{text!r} has no zone",
        fix=f"say which one: {said}Z for UTC, {said}+01:00 for a local zone",
    )


def show_instant(moment: datetime) -> str:
    """A moment in UTC as ISO 8601 with ``Z``, without needless zeros."""
    if moment >= FOREVER:
        return "the end"
    moment = moment.astimezone(UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S" if moment.second else "%Y-%m-%dT%H:%M")
    if moment.microsecond:
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0")
    return text + "Z"

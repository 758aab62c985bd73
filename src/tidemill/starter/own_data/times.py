"""Which column is the event time, which one the ingest time: by type, name and values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import ConfigError, nearest
from tidemill.rows.verdict import utc_time
from tidemill.starter.own_data.delays import Delays, delays_of, judge_delays, zone_shift
from tidemill.starter.own_data.names import EVENT, INGEST, SURELY_INGEST, weigh, words_of

_LOOKED_AT = 200
_MOST = 0.95
OFTEN = 0.05
"""Of an ingest time that is only guessed fewer rows have an event time after it."""
_FORMATS = ("%d/%b/%Y:%H:%M:%S %z", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %H:%M",
            "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S")  # fmt: skip
_TOO_OFTEN = 0.25
_DIGITS = re.compile(r"\d.*\D.*\d")
_EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_SINCE, _UNTIL = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (2000, 2050))
_TIME_WORDS = {"ts", "time", "timestamp", "date", "datetime", "at", "epoch", "tstamp"}
DATE = "a date"
"""What a column is that tells a day, but no time of the day."""


@dataclass(frozen=True)
class NearlyTime:
    """A column that tells a time, but not as a timestamp."""

    column: str
    kind: str  # what it is instead
    example: str

    @property
    def advice(self) -> str:
        """What the column is, and what to do with it."""
        return (
            f"{self.column!r} is {self.kind} ({self.example}), not a timestamp: to use it, write "
            "the archive again with this column cast to a timestamp"
        )


@dataclass(frozen=True)
class Times:
    """The times of the rows, as they were chosen."""

    event: str
    ingest: str  # the event time, if the rows have no ingest time
    zone: str
    delays: Delays | None  # None: event and ingest time are one column
    candidates: dict[str, str]  # every timestamp column with its type
    others: dict[str, Delays] = field(default_factory=dict)  # that could be the ingest time
    nearly: tuple[NearlyTime, ...] = ()
    shift: timedelta | None = None  # by which event times without a zone are ahead of UTC
    without_event: float = 0.0  # the share of rows without an event time
    unfit: dict[str, str] = field(default_factory=dict)  # named like an ingest time, but are none

    @property
    def has_ingest(self) -> bool:
        """Whether the rows tell when the log accepted them."""
        return self.event != self.ingest

    def is_zoned(self, column: str) -> bool:
        """Whether the times of a column carry a zone."""
        return "tz=" in self.candidates[column]


def find_times(
    rows: pa.Table, event: str | None, ingest: str | None, unfit: Mapping[str, str]
) -> Times:
    """Choose both times. ``event`` and ``ingest`` are what the user says.

    ``unfit`` are columns that cannot be the ingest time, with the reason.
    """
    candidates = {f.name: str(f.type) for f in rows.schema if pa.types.is_timestamp(f.type)}
    nearly = tuple(_nearly_times(rows))
    for name, option in ((event, "--event-time"), (ingest, "--ingest-time")):
        _require_time(name, option, rows, candidates, nearly)
    filled = [name for name in candidates if rows[name].null_count < len(rows)]
    if not filled:
        raise _no_time(rows, nearly)
    for name in filled:
        if rows[name].null_count and weigh(name, INGEST) >= SURELY_INGEST:
            unfit = {name: _some_are_null(rows, name), **unfit}
    chosen = ingest or _find_ingest(rows, filled, event, unfit)
    event = event or _find_event(filled, chosen)
    if chosen is None:
        chosen = event = _usable(rows, event, filled, unfit)
    zone, shift, delays = "UTC", None, None
    if chosen != event:
        zone, shift, delays = _compare(rows, event, chosen)
    return Times(
        event,
        chosen,
        zone,
        delays,
        candidates,
        {} if delays else _others(rows, event, [name for name in filled if name not in unfit]),
        nearly,
        shift,
        rows[event].null_count / len(rows),
        {name: reason for name, reason in unfit.items() if name != event},
    )


def in_utc(rows: pa.Table, column: str, zone: str = "UTC") -> pa.ChunkedArray:
    """A time as rows are judged by it."""
    return pa.chunked_array(
        [utc_time(chunk, zone) for chunk in rows[column].chunks], pa.timestamp("us", "UTC")
    )


def _require_time(
    name: str | None,
    option: str,
    rows: pa.Table,
    candidates: Mapping[str, str],
    nearly: tuple[NearlyTime, ...],
) -> None:
    if name is None:
        return
    if name not in rows.column_names:
        close = nearest(name, rows.column_names)
        raise ConfigError(f"there is no column {name!r}", where=option, fix=close, column=name)
    problem = f"is {rows.schema.field(name).type}, not a timestamp"
    if name in candidates:
        if rows[name].null_count < len(rows):
            return
        problem = f"has no value in the {len(rows):,} rows that were looked at"
    told = [found.advice for found in nearly if found.column == name]
    others = ", ".join(each for each in candidates if each != name) or "there is none"
    raise ConfigError(
        f"the column {name!r} {problem}",
        where=option,
        fix=told[0] if told else f"name a timestamp: {others}",
        column=name,
    )


def _no_time(rows: pa.Table, nearly: tuple[NearlyTime, ...]) -> ConfigError:
    told = "; ".join(found.advice for found in nearly)
    columns = ", ".join(f"{field.name} {field.type}" for field in rows.schema)
    return ConfigError(
        f"no column is a timestamp with values; found: {columns}",
        where="--archive",
        fix=told or "every row must tell when it happened: write the archive with such a column",
    )


def _find_ingest(
    rows: pa.Table, filled: list[str], event: str | None, unfit: Mapping[str, str]
) -> str | None:
    """The column whose name says so; if that says little, the delays must fit as well."""
    weights = {
        name: weigh(name, INGEST)
        for name in filled
        if name != event and name not in unfit and not rows[name].null_count
    }
    for name in sorted(weights, key=lambda name: -weights[name]):
        if weights[name] >= SURELY_INGEST:
            return name
        rest = [other for other in filled if other != name]
        if weights[name] and rest:
            delays = delays_of(in_utc(rows, event or _find_event(rest, None)), in_utc(rows, name))
            if len(delays) and judge_delays(delays).ahead < OFTEN:
                return name
    return None


def _find_event(filled: list[str], ingest: str | None) -> str:
    rest = [name for name in filled if name != ingest] or filled
    return max(rest, key=lambda name: weigh(name, EVENT) - weigh(name, INGEST) / 10)


def _usable(rows: pa.Table, event: str, filled: list[str], unfit: Mapping[str, str]) -> str:
    """The event time, if it can also be the ingest time, which is there in every row."""
    if event not in unfit and not rows[event].null_count:
        return event
    fit = [name for name in filled if name not in unfit and not rows[name].null_count]
    reason = unfit.get(event) or _some_are_null(rows, event)
    raise ConfigError(
        f"the rows have no ingest time, and the event time {event!r} cannot stand for it: {reason}",
        where="--archive",
        fix=f"say --event-time {fit[0]}"
        if fit
        else "write the archive again with a time in every row, or with the time at which each row "
        "was written, and name it with --ingest-time",
    )


def _some_are_null(rows: pa.Table, column: str) -> str:
    return f"{rows[column].null_count:,} of {len(rows):,} rows have none"


def _compare(
    rows: pa.Table, event: str, ingest: str
) -> tuple[str, timedelta | None, Delays | None]:
    """The zone of event times that have none, and the delays."""
    at = in_utc(rows, ingest)
    delays = delays_of(in_utc(rows, event), at)
    if not len(delays):
        return "UTC", None, None
    shift = None if rows.schema.field(event).type.tz else zone_shift(delays)
    if shift is None or shift < timedelta(0):
        return "UTC", shift, judge_delays(delays)
    zone = f"Etc/GMT-{shift // timedelta(hours=1)}"  # as POSIX says it: east of Greenwich is minus
    return zone, shift, judge_delays(delays_of(in_utc(rows, event, zone), at))


def _others(rows: pa.Table, event: str, filled: list[str]) -> dict[str, Delays]:
    """Columns that are there in every row and in most rows not before the event time."""
    found = {}
    for name in filled:
        if name == event or rows[name].null_count:
            continue
        delays = delays_of(in_utc(rows, event), in_utc(rows, name))
        if not len(delays):
            continue
        if judge_delays(delays).ahead < _TOO_OFTEN:
            found[name] = judge_delays(delays)
    return found


def _nearly_times(rows: pa.Table) -> list[NearlyTime]:
    found = []
    for field_ in rows.schema:
        values = rows[field_.name].drop_null().slice(0, _LOOKED_AT)
        if not len(values):
            continue
        kind = None
        if pa.types.is_date(field_.type):
            kind = DATE
        elif pa.types.is_string(field_.type):
            kind = _written_time(values.to_pylist())
        elif pa.types.is_integer(field_.type) or pa.types.is_floating(field_.type):
            kind = _epoch(field_.name, values)
        if kind is not None:
            found.append(NearlyTime(field_.name, kind, str(values[0].as_py())))
    return found


def _written_time(texts: list[str]) -> str | None:
    if sum(map(_is_time, texts)) < _MOST * len(texts):
        return None
    return DATE if max(map(len, texts)) <= len("2026-01-01") else "text that reads as a time"


def _is_time(text: str) -> bool:
    if not _DIGITS.search(text):
        return False
    try:
        datetime.fromisoformat(text.strip())
        return True
    except ValueError:
        return any(_fits(text.strip(), form) for form in _FORMATS)


def _fits(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # noqa: DTZ007 - whether it can be read is all that counts
        return True
    except ValueError:
        return False


def _epoch(name: str, values: pa.ChunkedArray) -> str | None:
    """A number that lies between the years 2000 and 2050 in some unit, and is named like a time."""
    if not _TIME_WORDS & set(words_of(name)):
        return None
    low, high = pc.min_max(values).as_py().values()
    for unit, scale in _EPOCHS.items():
        if _SINCE * scale <= low and high <= _UNTIL * scale:
            return f"a number of {unit} since 1970"
    return None

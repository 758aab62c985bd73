"""Make requests from the values that people give: times and durations as text or as objects."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from tidemill.errors import PlanError, nearest
from tidemill.planning.plan import NOW, Beginning, RunRequest
from tidemill.types import (
    BEGINNING,
    FOREVER,
    TimeRange,
    parse_duration,
    parse_instant,
    show_instant,
    to_micros,
)

When = datetime | str
Length = timedelta | str
_LIVE_ONLY = ("trigger", "emit_from", "state")
_BACKFILL_ONLY = ("yield_to", "instances")
RUN_OPTIONS = tuple(
    field.name
    for field in fields(RunRequest)
    if field.name not in ("pipeline", "range", "live", *_BACKFILL_ONLY)
)
"""The options of a live run by their names in Python."""
BACKFILL_OPTIONS = (*(name for name in RUN_OPTIONS if name not in _LIVE_ONLY), *_BACKFILL_ONLY)


@dataclass(frozen=True)
class Goal:
    """When a live run stops by itself, cleanly; None means: no such goal."""

    seconds: float | None = None
    frontier: int | None = None  # every row with an ingest time before it is committed


def request(
    pipeline: str, start: When | None = None, end: When | None = None, **options: Any
) -> RunRequest:
    """A request for a backfill, from the values that people give.

    With ``instances`` the range may be left open: their periods say what is computed.
    """
    _require_known(options, BACKFILL_OPTIONS)
    ids = options.get("instances")
    if ids is not None:
        options["instances"] = tuple(map(str, [ids] if isinstance(ids, str) else ids))
    if not options.get("instances") and (start is None or end is None):
        raise PlanError(
            f"a backfill needs a range: {'--from' if start is None else '--to'} is missing",
            where=f"pipeline {pipeline}",
            fix="give --from and --to; or, where the pipeline has instances, --instance ID",
        )
    first, last = BEGINNING if start is None else start, FOREVER if end is None else end
    return _request(pipeline, first, last, options)


def _require_known(options: Mapping[str, Any], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            hint = nearest(name, known)
            raise PlanError(f"there is no option {name!r}", fix=hint, option=name)


def _request(pipeline: str, start: When, end: When, options: dict[str, Any]) -> RunRequest:
    for name in ("slice", "warm_up", "look_ahead"):
        if options.get(name) is not None:
            options[name] = parse_duration(options[name])
    for name in ("regions", "where"):
        given = options.get(name)
        if given is not None:
            options[name] = (given,) if isinstance(given, str) else tuple(given)
    if options.get("params") is not None:
        options["params"] = _params(options["params"])
    if options.get("slice") is not None and options.get("slice_rows") is not None:
        raise PlanError("--slice and --slice-rows exclude each other", fix="give one of them")
    if options.get("rate") is not None:
        rate = options["rate"]
        options["rate"] = int(rate)
        if options["rate"] <= 0:
            raise PlanError(f"--rate {rate} is not a positive number of rows per second")
    return RunRequest(pipeline, TimeRange(_moment(start), _moment(end)), **options)


def _params(given: object) -> tuple[tuple[str, Any], ...]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise PlanError(
            f"params are values by name, found {given!r}", fix="write params={'campaign': 'vip'}"
        )
    return tuple(sorted(given.items()))


def run_request(
    pipeline: str, start: When | None, begin: str = "latest", **options: Any
) -> RunRequest:
    """A request for a live run, from the values that people give."""
    if begin not in ("latest", "earliest"):
        raise PlanError(
            f"a run begins at 'latest' or 'earliest', not at {begin!r}", fix="or give --from"
        )
    _require_known(options, RUN_OPTIONS)
    if options.get("state") is not None and (start is not None or begin != "latest"):
        raise PlanError(
            "--state says itself where the run begins: exactly where the state ends, or rows would "
            "count twice or not at all",
            fix="leave --from and --start out",
        )
    chosen = Beginning(begin) if start is None else Beginning.HISTORY
    if options.get("trigger") is not None:
        options["trigger"] = parse_duration(options["trigger"])
    first = BEGINNING if start is None else _moment(start)
    if options.get("emit_from") is not None:
        options["emit_from"] = _emission(start, first, options["emit_from"])
    return _request(pipeline, first, FOREVER, {**options, "live": chosen})


def _emission(start: When | None, first: datetime, given: When) -> datetime | str:
    """The time from which on rows are written; history before it only makes state."""
    if start is None:
        raise PlanError(
            "--emit-from holds back the output of history, and without --from none is read",
            fix="give --from TIME, where the history begins that makes the state; or leave "
            "--emit-from out",
        )
    if given == NOW:
        return NOW
    moment = _moment(given)
    if moment < first:
        raise PlanError(
            f"--emit-from {show_instant(moment)} is before --from {show_instant(first)}",
            fix="history begins at --from, and output at --emit-from: give a later one, or leave "
            "it out",
        )
    return moment


@dataclass(frozen=True)
class Until:
    """When a live run stops by itself: after a time, at a frontier, or when it has caught up."""

    length: Length | None = None
    moment: When | None = None
    caught_up: bool = False

    def goal(self, now: datetime, complete: int | None = None) -> Goal:
        """The goal for the driver. Caught up means: all is read that the log had at ``now``.

        If the log itself says up to which time (µs) it is ``complete``, the run has caught up
        there, because such a log may stay behind the clock for ever.
        """
        moments = [] if self.moment is None else [to_micros(_moment(self.moment))]
        if self.caught_up:
            moments.append(to_micros(now) if complete is None else min(to_micros(now), complete))
        seconds = None if self.length is None else parse_duration(self.length).total_seconds()
        return Goal(seconds, max(moments, default=None))


def _moment(value: When) -> datetime:
    return parse_instant(value) if isinstance(value, str) else value

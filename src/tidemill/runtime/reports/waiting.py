"""Why nothing moves in a run now: one reason, since when, and a sentence for people.

A reason is found from what processes leave in the run's folder, from the registry and from locks.
The first one that holds is told: what stops everything comes before what only slows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidemill.runfolder.control import read_control
from tidemill.runfolder.lease import awaited_jvm, held_since, is_held, is_watched, owner
from tidemill.runfolder.offset_log import is_between_batches
from tidemill.runfolder.retrying import read_retry
from tidemill.runtime.registry import RunState
from tidemill.runtime.reports.pace import begun_at, committed_at, last_sign
from tidemill.types import (
    FOREVER_MICROS,
    SECOND,
    from_micros,
    parse_instant,
    show_instant,
    show_seconds,
    to_micros,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.control import Control
    from tidemill.runfolder.folder import RunFolder
    from tidemill.runtime.registry import Registry, RunRecord
    from tidemill.runtime.reports.results import Phase, Progress


class Reason(StrEnum):
    """Why nothing moves. Scripts may rely on these words."""

    PLANNED = "planned"  # nobody has started it
    DEAD = "driver died"
    RESTART = "restart"  # its supervisor starts the next driver after a pause
    LEASE = "lease"  # the driver waits for the JVM of the one before it
    STARTING = "starting"  # Spark and the pipeline's code are loaded
    PAUSED = "paused"
    AWAY = "away"  # a log or a catalog does not answer
    COMMIT = "commit"  # a commit is tried again
    STOPPING = "stopping"  # told to stop, and its slice is not done
    FIRST_BATCH = "first batch"
    YIELDING = "yielding"  # gives way to a live run
    RATE = "rate"
    SOURCE = "source"  # a source is far ahead of another one, and waits for it
    LOG = "log"  # no new rows


@dataclass(frozen=True)
class Waiting:
    """The reason, since when (µs) if it is known, and the facts of the reason."""

    reason: Reason
    text: str
    since: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """For people."""
        since = "" if self.since is None else f" (since {show_instant(from_micros(self.since))})"
        return self.text + since

    def to_json(self) -> dict[str, Any]:
        """As ``status --json`` prints it."""
        since = None if self.since is None else show_instant(from_micros(self.since))
        return {"reason": str(self.reason), "since": since, "text": self.text, **self.facts}


@dataclass(frozen=True)
class Look:
    """What is known of a run when somebody asks."""

    registry: Registry
    known: RunRecord  # as the registry has it
    folder: RunFolder
    manifest: Manifest
    progress: Progress
    phase: Phase | None  # of a run without an end

    @property
    def run(self) -> str:
        """The run's id."""
        return self.known.run


def find_waiting(look: Look) -> Waiting | None:
    """Why nothing moves; None if something does, or the run has ended."""
    path, state = look.folder.path, look.known.state
    if not is_held(path):
        return _without_driver(look)
    jvm = awaited_jvm(path)
    if jvm is not None:
        text = f"its driver (pid {owner(path)}) waits until the last one's JVM (pid {jvm}) ends"
        return Waiting(Reason.LEASE, text, _micros(held_since(path)), {"pid": jvm})
    if state is not RunState.RUNNING:
        return None
    return next(_with_driver(look, read_control(path)), None)


def _without_driver(look: Look) -> Waiting | None:
    state, run = look.known.state, look.run
    if state in (RunState.RUNNING, RunState.FAILED) and is_watched(look.folder.path):
        text = "its driver ended, and its supervisor starts the next one after a pause"
        return Waiting(Reason.RESTART, text, _micros(last_sign(look.folder)))
    if state is RunState.PLANNED:
        text = f"nobody has started it: 'tidemill resume {run}' does"
        return Waiting(Reason.PLANNED, text, to_micros(parse_instant(look.known.created)))
    if state is RunState.RUNNING:
        text = f"its driver died: 'tidemill resume {run}' goes on exactly where it was"
        return Waiting(Reason.DEAD, text, _micros(last_sign(look.folder)))
    return None


def _with_driver(look: Look, control: Control) -> Iterator[Waiting]:
    """All that holds a run back which has a driver, the most serious first."""
    since = held_since(look.folder.path) or 0.0
    begun, committed = begun_at(look.folder) or 0.0, committed_at(look.folder) or 0.0
    is_idle = is_between_batches(look.folder.checkpoint)
    yield from _outages(look, since * SECOND)
    if control.stopping or control.cancelled:
        yield Waiting(Reason.STOPPING, "it was told to end, and finishes its slice first")
    elif control.paused and is_idle:
        text = f"it is paused: 'tidemill resume {look.run}' lets it go on"
        yield Waiting(Reason.PAUSED, text, control.held_at)
    if max(begun, committed) < since:
        text = "Spark and the pipeline's code are being loaded"
        yield Waiting(Reason.STARTING, text, _micros(since))
    elif not is_idle and committed < since:
        text = "its first batch is not done: Spark's workers start, and the code runs at first"
        yield Waiting(Reason.FIRST_BATCH, text, _micros(begun))
    if is_idle:
        yield from _rates(look, control)
        yield from _alignment(look)
    yield from _quiet(look)


def _outages(look: Look, since: float) -> Iterator[Waiting]:
    """What the driver that began at a time (µs) was told; notes of earlier ones do not count."""
    retry = read_retry(look.folder.path)
    if retry is not None:
        text = f"the commit to the {retry.place} is tried again: {retry.why}"
        yield Waiting(Reason.COMMIT, text, retry.since, {"place": retry.place})
    for source, lag in (look.phase.lags if look.phase else {}).items():
        if lag.waiting is not None and lag.at >= since:
            text = f"{source} waits: {lag.waiting}"
            yield Waiting(Reason.AWAY, text, lag.since, {"source": source})


def _rates(look: Look, control: Control) -> Iterator[Waiting]:
    """A rate holds slices of history back; of a log it leaves rows unread."""
    limit = control.limit(look.manifest.times.rate)
    if limit is None:
        return
    lags = look.phase.lags if look.phase else {}
    is_live = look.phase is not None and look.phase.name == "live"
    frontier = look.progress.totals.frontier or look.manifest.times.frontiers[0]
    held = control.released is not None and control.released <= frontier
    if not held and not (is_live and any(sum(lag.rows.values()) for lag in lags.values())):
        return
    since, facts = _micros(committed_at(look.folder)), {"rows_per_second": limit}
    if limit == control.yielding:
        other = look.manifest.times.yields_to
        text = f"it gives way to the run {other}: at most {limit:,} rows per second"
        yield Waiting(Reason.YIELDING, text, since, {**facts, "run": other})
    text = f"it reads at most {limit:,} rows per second: 'tidemill rate {look.run} off' lifts that"
    yield Waiting(Reason.RATE, text, since, facts)


def _alignment(look: Look) -> Iterator[Waiting]:
    """A source of a live run that is as far ahead of another one as it may be."""
    phase = look.phase
    if phase is None or not phase.lags:
        return
    slowest = min(phase.lags, key=lambda name: phase.lags[name].frontier)
    behind = phase.lags[slowest].frontier
    for name, lag in phase.lags.items():
        ahead = lag.frontier - behind
        at_seam = phase.name == "history" and lag.frontier >= phase.seams.get(name, FOREVER_MICROS)
        if ahead > 0 and (at_seam or ahead >= look.manifest.times.misalignment):
            text = f"{name} waits for {slowest}, which is {show_seconds(ahead / SECOND)} behind it"
            yield Waiting(Reason.SOURCE, text, None, {"source": name, "for": slowest})


def _quiet(look: Look) -> Iterator[Waiting]:
    """Batches go on where logs have no new rows: the frontier follows the clock."""
    phase = look.phase
    if phase is None or phase.name != "live" or not phase.lags:
        return
    if not any(sum(lag.rows.values()) for lag in phase.lags.values()):
        is_idle, last = look.registry.last_rows(look.run)
        if is_idle:
            text = f"no new rows in {', '.join(phase.lags)}"
            yield Waiting(Reason.LOG, text, last, {"sources": list(phase.lags)})


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * SECOND)

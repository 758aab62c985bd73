"""How far live sources are behind: notes that a source leaves for `status`, never decisions."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace

from tidemill.runfolder.folder import LAG, NEXT_TIMES
from tidemill.storage.location import Location, Place


@dataclass(frozen=True)
class Lag:
    """How far a live source is behind its log, when it last looked."""

    at: int  # µs, when it looked
    frontier: int
    rows: dict[str, int] = field(default_factory=dict)  # per partition, not read yet
    waiting: str | None = None  # why nothing can be read now
    since: int | None = None  # since when
    done: int | None = None  # a feed: every request made before is committed
    times: dict[str, int] = field(default_factory=dict)  # of the next row, where it is known

    @property
    def reached(self) -> int:
        """Up to when the log is read (µs): the frontier, of a feed the time of its requests."""
        return self.frontier if self.done is None else self.done

    @property
    def behind(self) -> int:
        """How far behind in µs: behind the clock, a feed behind its requests."""
        return max(0, self.at - self.reached)

    @property
    def behinds(self) -> dict[str, int]:
        """How far each partition is behind in µs: the age of its next row, 0 if it has none.

        Where the next row's time is not known it counts as old as it can be: all partitions are
        read up to the same time.
        """
        ages = {
            number: self.at - max(self.reached, self.times.get(number, 0)) for number in self.rows
        }
        return {number: max(0, ages[number]) if rows else 0 for number, rows in self.rows.items()}


def write_lag(run: Place, source: str, lag: Lag) -> None:
    """Tell `status` where a source stands; a note, not a decision."""
    _place(run, LAG, source).write_json(asdict(lag))


def _place(run: Place, name: str, source: str) -> Location:
    return Location.of(run) / name.format(source=source)


def write_times(run: Place, source: str, reached: int, times: dict[str, int]) -> None:
    """Tell `status` when the first row of each partition came that is not before ``reached``."""
    _place(run, NEXT_TIMES, source).write_json({"reached": reached, "times": times})


def with_times(run: Place, source: str, lag: Lag) -> Lag:
    """The lag with what :func:`write_times` said, if a rewind did not lead back before it.

    A row that was read since counts no more: it is older than what the source has reached.
    """
    try:
        found = _place(run, NEXT_TIMES, source).read_json()
        known = dict(found["times"]) if found["reached"] <= lag.reached else {}
    except (ValueError, TypeError, KeyError):
        return lag
    return replace(lag, times={**known, **lag.times})


def write_waiting(run: Place, source: str, frontier: int, why: str) -> None:
    """Tell `status` that a source cannot be read now, and since when that is so."""
    now, known = time.time_ns() // 1_000, read_lag(run, source)
    since = now if known is None or known.since is None else known.since
    rows = {} if known is None else known.rows
    write_lag(run, source, Lag(now, frontier, rows, waiting=why, since=since))


def is_due(run: Place, source: str, pause: int) -> bool:
    """Whether the last look, by whichever use of the source, is at least a pause (µs) ago."""
    known = read_lag(run, source)
    return known is None or not 0 <= time.time_ns() // 1_000 - known.at < pause


def read_lag(run: Place, source: str) -> Lag | None:
    """What :func:`write_lag` last said."""
    try:
        return Lag(**_place(run, LAG, source).read_json())
    except (ValueError, TypeError):  # there is none, or it is not ours
        return None

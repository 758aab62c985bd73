"""How far live sources are behind: notes that a source leaves for `status`, never decisions."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

_NAME = "lag.{}.json"


@dataclass(frozen=True)
class Lag:
    """How far a live source is behind its log, when it last looked."""

    at: int  # µs, when it looked
    frontier: int
    rows: dict[str, int] = field(default_factory=dict)  # per partition, not read yet
    waiting: str | None = None  # why nothing can be read now
    since: int | None = None  # since when
    done: int | None = None  # a feed: every request made before is committed

    @property
    def behind(self) -> int:
        """How far behind in µs: behind the clock, a feed behind its requests."""
        return max(0, self.at - (self.frontier if self.done is None else self.done))


def write_lag(run: Path, source: str, lag: Lag) -> None:
    """Tell `status` where a source stands; a note, not a decision."""
    path = run / _NAME.format(source)
    draft = path.with_suffix(f".{os.getpid()}.tmp")  # a stream may be used twice
    draft.write_text(json.dumps(asdict(lag)), "utf-8")
    draft.replace(path)


def write_waiting(run: Path, source: str, frontier: int, why: str) -> None:
    """Tell `status` that a source cannot be read now, and since when that is so."""
    now, known = time.time_ns() // 1_000, read_lag(run, source)
    since = now if known is None or known.since is None else known.since
    rows = {} if known is None else known.rows
    write_lag(run, source, Lag(now, frontier, rows, waiting=why, since=since))


def is_due(run: Path, source: str, pause: int) -> bool:
    """Whether the last look, by whichever use of the source, is at least a pause (µs) ago."""
    known = read_lag(run, source)
    return known is None or not 0 <= time.time_ns() // 1_000 - known.at < pause


def read_lag(run: Path, source: str) -> Lag | None:
    """What :func:`write_lag` last said."""
    try:
        return Lag(**json.loads((run / _NAME.format(source)).read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None

"""How far live sources are behind: notes that a source leaves for `status`, never decisions."""

from __future__ import annotations

import json
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


def write_lag(run: Path, source: str, lag: Lag) -> None:
    """Tell `status` where a source stands; a note, not a decision."""
    path = run / _NAME.format(source)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(lag)), "utf-8")
    draft.replace(path)


def read_lag(run: Path, source: str) -> Lag | None:
    """What :func:`write_lag` last said."""
    try:
        return Lag(**json.loads((run / _NAME.format(source)).read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None

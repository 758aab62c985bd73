"""A cache for analyses of pipeline code, each with the files and variables the code has read."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.planning.code.analysis import PipelineFacts
from tidemill.planning.code.params import Param
from tidemill.runtime.code.lookout import Looked
from tidemill.storage.location import Location

_KEEP = 200


@dataclass(frozen=True)
class KnownCode(JsonValue):
    """What a pipeline reads, its parameters and, for given columns, the facts of its plan."""

    streams: tuple[str, ...]
    columns: str
    facts: PipelineFacts
    looked: Looked
    params: dict[str, Param] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    instances: str | None = None


def digest(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A short name for the columns of all sources and their types."""
    text = json.dumps([(name, list(columns[name].items())) for name in sorted(columns)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def recall(home: Path, fingerprint: str) -> KnownCode | None:
    """The cached analysis of this code; None if there is none, or if the entry is damaged.

    An entry is also not used if something that the code reads (a module, a file, an environment
    variable) has changed since, or if it does not tell the state of folds.
    """
    try:
        known = load_json(KnownCode, _path(home, fingerprint).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    is_whole = all(fold.use.shape is not None for fold in known.facts.folds)
    return known if is_whole and known.looked.is_unchanged() else None


def forget(home: Path, fingerprint: str) -> None:
    """Remove the entry, so that the next plan analyses the code again."""
    with contextlib.suppress(OSError):
        _path(home, fingerprint).unlink(missing_ok=True)


def remember(home: Path, fingerprint: str, known: KnownCode) -> None:
    """Write an entry, and remove the oldest ones if there are many. Disk errors are ignored."""
    path = _path(home, fingerprint)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        Location.of(path).write(dump_json(known))
        entries = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime)
        for old in entries[:-_KEEP]:
            old.unlink(missing_ok=True)


def _path(home: Path, fingerprint: str) -> Path:
    return home / "analysis" / f"{fingerprint}.json"

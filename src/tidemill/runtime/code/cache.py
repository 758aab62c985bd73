"""A cache for analyses of pipeline code, each with the files and variables the code has read."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.planning.analysis import PipelineFacts
from tidemill.runtime.code.lookout import Looked
from tidemill.storage.location import Location

_KEEP = 200


@dataclass(frozen=True)
class KnownCode:
    """The streams that a pipeline reads and, for given columns, the facts found in its plan."""

    streams: tuple[str, ...]
    columns: str
    facts: PipelineFacts
    looked: Looked


def digest(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A short name for the columns of all sources and their types."""
    text = json.dumps([(name, list(columns[name].items())) for name in sorted(columns)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def recall(home: Path, fingerprint: str) -> KnownCode | None:
    """The cached analysis of this code; None if there is none, or if the entry is damaged.

    An entry is also not used if something that the code reads (a module, a file, an environment
    variable) has changed since.
    """
    try:
        value = json.loads(_path(home, fingerprint).read_text("utf-8"))
        looked = Looked(**value["looked"])
        if not looked.is_unchanged():
            return None
        facts = PipelineFacts.from_json(value["facts"])
        return KnownCode(tuple(value["streams"]), value["columns"], facts, looked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def forget(home: Path, fingerprint: str) -> None:
    """Remove the entry, so that the next plan analyses the code again."""
    with contextlib.suppress(OSError):
        _path(home, fingerprint).unlink(missing_ok=True)


def remember(home: Path, fingerprint: str, known: KnownCode) -> None:
    """Write an entry, and remove the oldest ones if there are many. Disk errors are ignored."""
    path = _path(home, fingerprint)
    with contextlib.suppress(OSError):
        _write(path, known)


def _write(path: Path, known: KnownCode) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "streams": known.streams,
        "columns": known.columns,
        "facts": known.facts.to_json(),
        "looked": known.looked.to_json(),
    }
    Location.of(path).write(json.dumps(value))
    entries = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime)
    for old in entries[:-_KEEP]:
        old.unlink(missing_ok=True)


def _path(home: Path, fingerprint: str) -> Path:
    return home / "analysis" / f"{fingerprint}.json"

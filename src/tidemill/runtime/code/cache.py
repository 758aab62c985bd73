"""Keep what analysing a pipeline's code told, with all that the code looked at."""

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
    """The streams a pipeline reads and, for certain columns of them, what its plan tells."""

    streams: tuple[str, ...]
    columns: str
    facts: PipelineFacts
    looked: Looked


def digest(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A short name for the columns of all sources and their types."""
    text = json.dumps([(name, list(columns[name].items())) for name in sorted(columns)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def recall(home: Path, fingerprint: str) -> KnownCode | None:
    """What is known of this code, if anything; a damaged entry counts as unknown.

    So does one whose code looked at something that is another now: a module, a file, a variable.
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
    """Let the next plan analyse the code again."""
    with contextlib.suppress(OSError):
        _path(home, fingerprint).unlink(missing_ok=True)


def remember(home: Path, fingerprint: str, known: KnownCode) -> None:
    """Keep it, and forget the oldest when there are many. Where nothing can be kept, it is not."""
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

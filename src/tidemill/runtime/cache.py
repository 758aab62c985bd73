"""Keep what analysing a pipeline's code told, by the code's fingerprint."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.planning.analysis import PipelineFacts

_KEEP = 200


@dataclass(frozen=True)
class KnownCode:
    """The streams a pipeline reads and, for certain columns of them, what its plan tells."""

    streams: tuple[str, ...]
    columns: str
    facts: PipelineFacts


def digest(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A short name for the columns of all sources and their types."""
    text = json.dumps([(name, list(columns[name].items())) for name in sorted(columns)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def recall(home: Path, fingerprint: str) -> KnownCode | None:
    """What is known of this code, if anything; a damaged entry counts as unknown."""
    try:
        value = json.loads(_path(home, fingerprint).read_text("utf-8"))
        facts = PipelineFacts.from_json(value["facts"])
        return KnownCode(tuple(value["streams"]), value["columns"], facts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(home: Path, fingerprint: str, known: KnownCode) -> None:
    """Keep it, and forget the oldest when there are many. Where nothing can be kept, it is not."""
    path = _path(home, fingerprint)
    draft = path.with_suffix(".tmp")
    with contextlib.suppress(OSError):
        _write(path, draft, known)
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)


def _write(path: Path, draft: Path, known: KnownCode) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "streams": known.streams,
        "columns": known.columns,
        "facts": known.facts.to_json(),
    }
    draft.write_text(json.dumps(value), "utf-8")
    draft.replace(path)
    entries = sorted(path.parent.glob("*.json"), key=lambda entry: entry.stat().st_mtime)
    for old in entries[:-_KEEP]:
        old.unlink(missing_ok=True)


def _path(home: Path, fingerprint: str) -> Path:
    return home / "analysis" / f"{fingerprint}.json"

"""Columns of JSON records that nobody declared: inferred once from some of them, then pinned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.storage.location import Location

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig


def pinned_path(loaded: LoadedConfig, stream: str) -> Path:
    """Where inferred columns are kept; people may edit it."""
    return loaded.home / "schemas" / f"{stream}.ddl"


def pin_columns(path: Path, text: str) -> None:
    """Keep columns, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Location.of(path).write(text + "\n")


def infer_columns(values: list[bytes | None], event_time: str) -> str:
    """DDL that fits all values that are JSON objects; fields that disagree become text."""
    kinds: dict[str, Any] = {}
    for value in values:
        try:
            record = json.loads(value or b"")
        except ValueError:
            continue
        if isinstance(record, dict):
            for name, part in record.items():
                kinds[name] = _merge(kinds.get(name), _kind(part))
    if event_time in kinds:
        kinds[event_time] = "timestamp"
    return ", ".join(f"{_quoted(name)} {_ddl(kind)}" for name, kind in kinds.items())


def _kind(value: Any) -> Any:
    """A type: a DDL word, a list of one, a dict of fields; None if a null tells nothing."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, list):
        found = None
        for part in value:
            found = _merge(found, _kind(part))
        return [found]
    if isinstance(value, dict):
        return {name: _kind(part) for name, part in value.items()}
    return "string"


def _merge(known: Any, found: Any) -> Any:
    if known is None or found is None or known == found:
        return found if known is None else known
    if known in ("long", "double") and found in ("long", "double"):
        return "double"
    if isinstance(known, list) and isinstance(found, list):
        return [_merge(known[0], found[0])]
    if isinstance(known, dict) and isinstance(found, dict):
        return {name: _merge(known.get(name), found.get(name)) for name in {**known, **found}}
    return "string"


def _ddl(kind: Any) -> str:
    if isinstance(kind, list):
        return f"array<{_ddl(kind[0])}>"
    if isinstance(kind, dict):
        fields = ", ".join(f"{_quoted(name)}: {_ddl(part)}" for name, part in kind.items())
        return f"struct<{fields}>" if fields else "string"
    return kind or "string"


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"

"""Columns of JSON records that nobody declared: inferred once from some of them, then pinned."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.records.ddl import name_text
from tidemill.storage.location import Location

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig

_WORDS = {bool: "boolean", int: "long", float: "double", str: "string"}


def pinned_path(loaded: LoadedConfig, stream: str) -> Path:
    """Where the inferred columns of a stream are kept; people may edit the file."""
    return loaded.home / "schemas" / f"{stream}.ddl"


def pin_columns(path: Path, text: str) -> None:
    """Keep columns; a reader sees the old text or the new one, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Location.of(path).write(text + "\n")


def infer_columns(values: list[bytes | None], event_time: str) -> str:
    """DDL that fits all values that are JSON objects; fields that disagree become text."""
    import msgspec

    kinds: dict[str, Any] = {}
    for value in values:
        with suppress(ValueError, RecursionError):
            record = msgspec.json.decode(value or b"")
            if isinstance(record, dict):
                kinds = _merge(kinds, _kind(record))
    if event_time in kinds:
        kinds[event_time] = "timestamp"
    return ", ".join(f"{name_text(name)} {_ddl(kind)}" for name, kind in kinds.items())


def _kind(value: Any) -> Any:
    """A type: a DDL word, a list of one, a dict of fields; None if a null tells nothing."""
    if isinstance(value, list):
        return [reduce(_merge, map(_kind, value), None)]
    if isinstance(value, dict):
        return {name: _kind(part) for name, part in value.items()}
    return _WORDS.get(type(value))


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
        fields = ", ".join(f"{name_text(name)}: {_ddl(part)}" for name, part in kind.items())
        return f"struct<{fields}>" if fields else "string"
    return kind or "string"

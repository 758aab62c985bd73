"""Manifests and pins for tests, by the names of their fields: whose part a field is, is found."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tidemill.planning.manifest import (
    ArchivePin,
    Manifest,
    Outputs,
    Resources,
    RunIdentity,
    RunTimes,
    SourcePin,
    SourceTimes,
)

Value = TypeVar("Value", bound=Any)
_PARTS_OF_PARTS = {"origin", "needs"}

BLANK = Manifest(
    RunIdentity("r", "p", "backfill", 0), RunTimes((0, 1), (0, 1)), {}, Outputs({}), Resources(1, 1)
)


def change(value: Value, **changes: Any) -> Value:
    """The value with other fields; those of its parts, too."""
    for name in (*("identity", "times", "rows", "code", "outputs", "resources"), *_PARTS_OF_PARTS):
        part = getattr(value, name, None)
        if is_dataclass(part):
            own = _names(part) & changes.keys()
            changes[name] = change(part, **{each: changes.pop(each) for each in own})
    return replace(value, **changes)


def _names(part: Any) -> set[str]:
    found = {each.name for each in fields(part)}
    inner = [getattr(part, name) for name in _PARTS_OF_PARTS & found]
    return found.union(*map(_names, inner))


def make_manifest(**values: Any) -> Manifest:
    """A backfill ``r`` of ``p`` without sources and sinks, where nothing else is said."""
    return change(BLANK, **values)


def make_pin(
    stream: str = "plays",
    archive: ArchivePin | None = None,
    event_time: str = "e",
    ingest_time: str = "i",
    **values: Any,
) -> SourcePin:
    """A source whose rows are never late, where nothing else is said."""
    return change(SourcePin(stream, archive, SourceTimes(event_time, ingest_time)), **values)

"""The state of one key as JSON text that decodes to exactly the same values.

Types that JSON lacks are tagged (``{"$time": "2026-01-01T00:00:00+00:00"}``). Each batch begins
with decoded state, and the user's code must not notice: types are exact, dicts keep their order,
and a list that is referred to twice is still one list. So there are no sets (their order changes
from process to process) and no subclasses (they would come back as their base class).
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any

from tidemill.errors import RunError
from tidemill.types import micros_of

_PLAIN = frozenset({int, str, float, bool, NoneType})
_dump = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_load = json.JSONDecoder().decode


def encode(state: dict[str, Any]) -> str:
    """The text of a state, or an error that names the entry and its type."""
    if type(state) is not dict:
        raise RunError(f"ctx.state is a {type(state).__name__}", fix="keep it a dict")
    for name, value in state.items():
        if type(value) not in _PLAIN or type(name) is not str or name.startswith("$"):
            return _dump(_Packer(state).pack(state, "state"))
    try:
        return _dump(state)
    except ValueError:  # nan, infinity
        return _dump(_Packer(state).pack(state, "state"))


def decode(text: str) -> dict[str, Any]:
    """The state back from its text."""
    loaded = _load(text)
    return _unpack(loaded, {}) if '"$' in text else loaded  # type: ignore[no-any-return]


class _Packer:
    """Turns values into JSON values; lists and dicts that occur twice are written once."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.met: Counter[int] = Counter()
        self.numbers: dict[int, int] = {}
        self.open: set[int] = set()
        self._count(state)

    def _count(self, value: object) -> None:
        if type(value) in (list, dict):
            self.met[id(value)] += 1
            if self.met[id(value)] > 1:
                return
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        if isinstance(inner, list | tuple):
            for each in inner:
                self._count(each)

    def pack(self, value: Any, path: str) -> Any:
        """One value."""
        kind = type(value)
        if kind is list or kind is dict:
            return self._shared(value, path)
        if kind is tuple:
            return {"$tuple": self._items(value, path)}
        if kind is float and not math.isfinite(value):
            return {"$float": repr(value)}
        if kind in _PLAIN:
            return value
        for tag, known, write, _ in _TAGS:
            if kind is known:
                return {tag: write(value)}
        if kind is datetime:
            return _pack_time(value, path)
        raise RunError(f"{path} is a {kind.__name__}, which cannot be stored", fix=_advice(value))

    def _shared(self, value: list[Any] | dict[Any, Any], path: str) -> Any:
        own = id(value)
        if own in self.open:
            raise RunError(f"{path} contains itself", fix="store what it stands for")
        if own in self.numbers:
            return {"$ref": self.numbers[own]}
        self.open.add(own)
        packed = self._dict(value, path) if isinstance(value, dict) else self._items(value, path)
        self.open.remove(own)
        if self.met[own] == 1:
            return packed
        self.numbers[own] = len(self.numbers)
        return {"$def": [self.numbers[own], packed]}

    def _items(self, values: list[Any] | tuple[Any, ...], path: str) -> list[Any]:
        return [self.pack(value, f"{path}[{index}]") for index, value in enumerate(values)]

    def _dict(self, value: dict[Any, Any], path: str) -> dict[str, Any]:
        if all(type(name) is str and not name.startswith("$") for name in value):
            return {name: self.pack(inner, f"{path}[{name!r}]") for name, inner in value.items()}
        pairs = [
            [self.pack(name, f"the key {name!r} of {path}"), self.pack(each, f"{path}[{name!r}]")]
            for name, each in value.items()
        ]
        return {"$map": pairs}


def _unpack(value: Any, shared: dict[int, Any]) -> Any:
    if type(value) is list:
        return [_unpack(inner, shared) for inner in value]
    if type(value) is not dict:
        return value
    tag: str = next(iter(value), "")
    inner: Any = value.get(tag)
    if not tag.startswith("$"):
        return {name: _unpack(inner, shared) for name, inner in value.items()}
    if tag == "$ref":
        return shared[inner]
    if tag == "$def":
        shared[inner[0]] = _unpack(inner[1], shared)
        return shared[inner[0]]
    if tag == "$tuple":
        return tuple(_unpack(each, shared) for each in inner)
    if tag == "$map":
        return {_unpack(name, shared): _unpack(each, shared) for name, each in inner}
    return _READ[tag](inner)


def _pack_time(value: datetime, path: str) -> dict[str, str]:
    if value.tzinfo is None:
        return {"$naive": value.isoformat()}
    if str(value.tzinfo) != "UTC":
        raise RunError(
            f"{path} is a datetime in {value.tzinfo}, which cannot be stored",
            fix="store it in UTC: value.astimezone(UTC)",
        )
    return {"$time": value.isoformat()}


def _advice(value: object) -> str:
    if isinstance(value, set | frozenset):
        return "use a dict with True as values (a set has no lasting order), or a sorted list"
    if isinstance(value, bytearray):
        return "store bytes(value)"
    for kind in (bool, int, float, str, dict, list, tuple):
        if isinstance(value, kind):
            return f"it would come back as a {kind.__name__}: store {kind.__name__}(value)"
    return (
        "store None, bool, int, float, str, bytes, Decimal, datetime, date, timedelta, "
        "or lists, tuples and dicts of them"
    )


_TAGS: tuple[tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    ("$decimal", Decimal, str, Decimal),
    ("$bytes", bytes, lambda value: b64encode(value).decode("ascii"), b64decode),
    ("$date", date, date.isoformat, date.fromisoformat),
    ("$span", timedelta, micros_of, lambda micros: timedelta(microseconds=micros)),
)
_READ: dict[str, Callable[[Any], Any]] = {
    **{tag: read for tag, _, _, read in _TAGS},
    "$float": float,
    "$time": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "$naive": datetime.fromisoformat,
}

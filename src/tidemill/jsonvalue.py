"""Values that one process keeps as JSON and another loads again, by the types of their fields.

Pydantic would do it as well, but it takes 90 ms to load, and Spark waits for the first offset of a
source, which stands in the run's manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields
from datetime import timedelta
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Value = TypeVar("Value", bound="JsonValue")


class JsonValue:
    """The base of a frozen dataclass that is kept as JSON.

    Its fields are such dataclasses, too, or made of texts (or an enum of texts), numbers, durations
    (in seconds), tuples and dictionaries. A text with an unknown field, without a needed field, or
    with a value of another type is refused.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


def dump_json(value: JsonValue, indent: int | None = None) -> str:
    """Stable text that :func:`load_json` reads."""
    seconds = timedelta.total_seconds
    return json.dumps(asdict(value), indent=indent, sort_keys=True, default=seconds)


def load_json(kind: type[Value], text: str) -> Value:
    """The inverse of :func:`dump_json`. Raises a ValueError of one line if the text is damaged."""
    found: Value = _read(kind, json.loads(text), ())
    return found


def _read(kind: Any, value: Any, place: tuple[str, ...]) -> Any:
    origin, kinds = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # X or None
        if value is None:
            return None
        (kind,) = (each for each in kinds if each is not NoneType)
        return _read(kind, value, place)
    if kind is Any or (value in kinds if origin is Literal else type(value) is kind):
        return value
    if origin is dict and isinstance(value, dict):
        return {name: _read(kinds[1], found, (*place, name)) for name, found in value.items()}
    if origin is tuple and isinstance(value, list):
        each = kinds[:1] * len(value) if kinds[-1] is ... else kinds
        if len(each) == len(value):
            places = ((*place, str(number)) for number in range(len(value)))
            return tuple(map(_read, each, value, places))
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    if kind in (float, timedelta) and type(value) in (int, float):
        return timedelta(seconds=value) if kind is timedelta else value
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, JsonValue):
        return kind(**dict(_fields(kind, value, place)))
    _refuse(place, f"{json.dumps(value):.60} is not {getattr(kind, '__name__', kind)}")


def _fields(kind: Any, value: dict[str, Any], place: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    kinds, needed = _types(kind)
    for name in {**dict.fromkeys(needed), **value}:
        if name not in value:
            _refuse((*place, name), "it is missing")
        if name not in kinds:
            _refuse((*place, name), "there is no such field")
        yield name, _read(kinds[name], value[name], (*place, name))


@cache
def _types(kind: type[Any]) -> tuple[dict[str, Any], list[str]]:
    """The types of a dataclass's fields, and the fields that have no default."""
    kinds, own = get_type_hints(kind), fields(kind)
    needed = [each.name for each in own if each.default is each.default_factory is MISSING]
    return {each.name: kinds[each.name] for each in own}, needed


def _refuse(place: tuple[str, ...], why: str) -> NoReturn:
    raise ValueError(f"{'.'.join(place)}: {why}" if place else why)

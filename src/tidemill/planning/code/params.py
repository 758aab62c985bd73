"""The values of a pipeline's parameters: their types, how people write them, how a manifest does.

A value is a text, a number, true or false, a date, a time with its zone, a duration, or null. It is
not secret: plans and runs show it, and the manifest keeps it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemill.errors import ConfigError
from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.behaviour import behaviour_line
from tidemill.types import parse_duration, parse_instant, show_duration

TYPES: Mapping[str, type] = {
    kind.__name__: kind for kind in (str, int, float, bool, Decimal, date, datetime, timedelta)
}
"""The types that a parameter can have, by the name that an annotation gives them."""
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_EXACT = 15
"""Decimal digits that a float of the YAML keeps."""
_NULL = "null"


class Written(str):
    """A value as a command line has it: a text, to be read by the type of the parameter."""

    __slots__ = ()


@dataclass(frozen=True)
class Param(JsonValue):
    """One value as a manifest keeps it."""

    type: str  # a name of TYPES, or None
    value: Any  # as JSON has it; what JSON has no type for is a text that `read_value` reads

    @classmethod
    def of(cls, value: Any) -> Param:
        """The value, which :func:`read_value` has checked."""
        plain = value is None or isinstance(value, str | bool | int | float)
        return cls(type(value).__name__.removesuffix("Type"), value if plain else write(value))

    def read(self) -> Any:
        """The value as the pipeline gets it."""
        if self.value is None:
            return None
        is_text = isinstance(self.value, str) and self.type != "str"
        return read_value(Written(self.value) if is_text else self.value, self.type)


def read_value(value: Any, kind: str | None, *, may_be_null: bool = False) -> Any:
    """The value in a type of TYPES; without one it keeps the type that it was written in.

    What does not fit is an error that says how to write it: nothing is rounded, cut or guessed.
    """
    if value is None or (may_be_null and isinstance(value, Written) and value == _NULL):
        if may_be_null:
            return None
        raise _wrong(None, kind or "value", "give a value, or let its default be None")
    if kind is not None:
        return _READERS[kind](value)
    found = _as_yaml(value) if isinstance(value, Written) else value
    return found if found is None else _READERS[kind_of(found)](found)


def kind_of(value: Any) -> str:
    """The name of the value's type; a value that cannot be a parameter's is an error."""
    name = type(value).__name__
    if TYPES.get(name) is not type(value):
        raise ConfigError(
            f"a {name} cannot be a parameter's value",
            fix="write a text, a number, true or false, a date, a time or a duration",
        )
    return name


def write(value: Any) -> str:
    """The value as ``--param`` has it, which :func:`read_value` reads back."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else str(value)


def show_params(params: Mapping[str, Any]) -> str:
    """The values in one line by name, each as a shell takes it after ``--param``."""
    values = sorted(params.items())
    return "  ".join(f"{name}={shlex.quote(write(value))}" for name, value in values)


def param_lines(params: Mapping[str, Any]) -> list[str]:
    """The values as lines of the code's behaviour: a run goes on with no others."""
    told = {name: f"param {name} = {write(value)}" for name, value in sorted(params.items())}
    return [behaviour_line(text, f"{text} {type(params[n])}") for n, text in told.items()]


def _str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise _wrong(value, "str", "put it in quotes: YAML reads on, off, yes, no, dates and numbers")


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, Written) and re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    raise _wrong(value, "int", "write a whole number without quotes: 5")


def _float(value: Any) -> float:
    if isinstance(value, Written) or type(value) in (int, float):
        with suppress(ValueError, OverflowError):
            if math.isfinite(found := float(value)):
                return found
    raise _wrong(value, "float", "write a finite number without quotes: 3.5")


def _bool(value: Any) -> bool:
    found = _WORDS.get(value.lower()) if isinstance(value, Written) else value
    if type(found) is bool:
        return found
    raise _wrong(value, "bool", "write true or false")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, float) and len(Decimal(repr(value)).as_tuple().digits) > _EXACT:
        raise _wrong(value, "exact Decimal", "put it in quotes, so that no digit is lost")
    if isinstance(value, str | float | Decimal) or type(value) is int:
        with suppress(InvalidOperation):
            found = Decimal(str(value))
            if found.is_finite():
                return found
    raise _wrong(value, "Decimal", "write a number: '3.50'")


def _date(value: Any) -> date:
    if type(value) is date:
        return value
    with suppress(ValueError):
        if isinstance(value, str):
            return date.fromisoformat(value)
    raise _wrong(value, "date", "write year, month and day: 2026-01-31")


def _datetime(value: Any) -> datetime:
    if isinstance(value, str):
        return parse_instant(value)
    if not isinstance(value, datetime):
        raise _wrong(value, "datetime", "write a time with a zone: '2026-01-01T00:00Z'")
    return value.astimezone(UTC) if value.tzinfo else parse_instant(value.isoformat())


_READERS: Mapping[str, Callable[[Any], Any]] = {
    **{"str": _str, "int": _int, "float": _float, "bool": _bool, "Decimal": _decimal},
    **{"date": _date, "datetime": _datetime, "timedelta": parse_duration},
}


def _as_yaml(text: str) -> Any:
    """The text as the YAML would read it; what is no single value there stays a text."""
    import yaml  # a run's manifest is read where nobody needs it

    with suppress(yaml.YAMLError, ValueError):
        found = yaml.safe_load(text)
        if found is None or type(found) in TYPES.values():
            return found
    return str(text)


def _wrong(value: Any, kind: str, fix: str) -> ConfigError:
    shown = repr(str(value)) if isinstance(value, str) else write(value)
    return ConfigError(f"{shown} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}", fix=fix)

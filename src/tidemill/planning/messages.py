"""What a row can be as a message: its key, what tells it from others, and what no message holds."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.config.pins import SinkPin
from tidemill.errors import PlanError

_FLOATS = {"float", "double"}
_HELD = {"string", "binary", "boolean", "byte", "short", "integer", "long", "date", "void"}
_HELD |= {"timestamp", "timestamp_ntz", "decimal", "varchar", "char", "map", *_FLOATS}


@dataclass(frozen=True)
class MessageShape:
    """Which columns of an output decide what about its messages.

    A row's id is made of its identity, all columns but sums of floating point numbers and the
    like, which may differ in the last digit when a batch runs again. Rows of one identity are
    numbered in the order of the others.
    """

    key: tuple[str, ...]
    time: str | None
    identity: tuple[str, ...]
    hashed: tuple[str, ...]  # those of the identity that Spark can hash
    ranked: tuple[str, ...]  # not of the identity

    @classmethod
    def of(cls, sink: SinkPin) -> "MessageShape":
        """The shape of a sink's messages."""
        kinds = {field["name"]: set(_kinds(field["type"])) for field in _fields(sink.schema)}
        ranked = {name for name, found in kinds.items() if found & _FLOATS and "map" not in found}
        identity = tuple(name for name in kinds if name not in ranked)
        return cls(
            key=sink.key,
            time=sink.time,
            identity=identity,
            hashed=tuple(name for name in identity if "map" not in kinds[name]),
            ranked=tuple(name for name in kinds if name in ranked),
        )


def check_messages(output: str, schema: str, key: list[str], where: str) -> None:
    """Every column must have a place in JSON, and a key must be the same when it comes again."""
    names = [field["name"] for field in _fields(schema)]
    for field in _fields(schema):
        name, found = field["name"], set(_kinds(field["type"]))
        if names.count(name) > 1:
            raise PlanError(
                f"the output {output!r} has two columns named {name!r}, a message has one",
                where=where,
                fix="rename one of them in the pipeline",
            )
        if found - _HELD:
            raise PlanError(
                f"the column {name!r} of {output!r} is of a type no message can hold: "
                f"{', '.join(sorted(found - _HELD))}",
                where=where,
                fix="cast it in the pipeline",
            )
        if name in key and found & {"map", *_FLOATS}:
            kind = ", ".join(sorted(found & {"map", *_FLOATS}))
            raise PlanError(
                f"the key {name!r} of the sink {output!r} is a {kind}: equal keys may be written "
                "differently",
                where=where,
                fix="cast it to a decimal, a whole number or a string in the pipeline",
            )


def _fields(schema: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(schema)["fields"]
    return found


def _kinds(kind: Any) -> Iterator[str]:
    """The names of all types inside a type of Spark's JSON, structs and arrays opened."""
    if isinstance(kind, str):
        yield re.sub(r"\(.*\)$", "", kind)
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from _kinds(field["type"])
    elif kind["type"] == "array":
        yield from _kinds(kind["elementType"])
    elif kind["type"] == "map":
        yield "map"
        key = kind["keyType"]
        yield from _kinds(key) if isinstance(key, str) else [f"map with {key['type']} keys"]
        yield from _kinds(kind["valueType"])
    else:
        yield str(kind["type"])

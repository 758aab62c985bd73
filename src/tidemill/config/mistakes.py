"""Pydantic's errors in the words of the file: the YAML path, and the nearest right key."""

from datetime import date
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tidemill.config.document import Document
from tidemill.config.kinds import Kinds
from tidemill.config.project import ProjectConfig
from tidemill.errors import ConfigError, nearest


def explain(error: ValidationError, document: Document) -> ConfigError:
    """The first mistake in the words of the file."""
    first = _first(error)
    keys, _ = _walk(first["loc"])
    found = first.get("input")
    if first["type"] == "extra_forbidden":
        _, section = _walk(first["loc"][:-1])
        return document.error(
            keys, f"unknown key {keys[-1]!r}", nearest(str(keys[-1]), _allowed(section))
        )
    if first["type"] == "missing":
        return document.error(keys[:-1], f"the key {keys[-1]!r} is missing")
    if first["type"].startswith("union_tag"):
        tag = found.get("type") if isinstance(found, dict) else found
        kinds = [_tag(member) for member in _members(_walk(first["loc"])[1])]
        problem = "the key 'type' is missing" if tag is None else f"unknown type {tag!r}"
        return document.error(keys, problem, nearest(str(tag), kinds))
    if first["type"] == "value_error":
        message, _, fix = str(first["ctx"]["error"]).partition("; ")
        return document.error(keys, message, fix)
    message = first["msg"][0].lower() + first["msg"][1:]
    shown = "" if isinstance(found, dict | list) else f", found {found!r}"
    fix = "put it in quotes: YAML reads on, off, yes, no and numbers as what they look like"
    is_word = first["type"] == "string_type" and isinstance(found, bool | int | float | date)
    return document.error(keys, f"{message}{shown}", fix if is_word else "")


def _first(error: ValidationError) -> Any:
    """The first mistake; a key that is missing may be there under a wrong name."""
    found = error.errors(include_url=False)
    beside = (
        other
        for other in found
        if found[0]["type"] == "missing"
        and other["type"] == "extra_forbidden"
        and other["loc"][:-1] == found[0]["loc"][:-1]
    )
    return next(beside, found[0])


def _walk(loc: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], Any]:
    """The YAML path of a pydantic location, and the type there.

    Pydantic also names the member of a union it tried, and a key that is wrong itself: neither
    is in the file.
    """
    keys: list[str | int] = []
    kind: Any = ProjectConfig
    for part in loc if loc[-1:] != ("[key]",) else loc[:-1]:
        members = _members(kind)
        if len(members) > 1:
            kind = next((member for member in members if _tag(member) == part), None)
            continue
        keys.append(part)
        kind = _inside(members[0], part) if members else None
    return tuple(keys), kind


def _members(kind: Any) -> list[Any]:
    """The types a value may have, None left out."""
    if get_origin(kind) is Annotated:
        tables = [part for part in get_args(kind)[1:] if isinstance(part, Kinds)]
        return tables[0].sections() if tables else _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for argument in get_args(kind) for member in _members(argument)]
    return [] if kind in (None, NoneType) else [kind]


def _inside(kind: Any, key: str | int) -> Any:
    """The type below a key: of a section, a mapping or a list."""
    if _is_section(kind):
        fields = kind.model_fields.items()
        return next((f.annotation for name, f in fields if key in (name, f.alias)), None)
    return get_args(kind)[-1] if get_args(kind) else None


def _tag(kind: Any) -> str:
    field = kind.model_fields.get("type") if _is_section(kind) else None
    return str(get_args(field.annotation)[0]) if field else ""


def _allowed(kind: Any) -> list[str]:
    """The keys a section takes."""
    sections = [member for member in _members(kind) if _is_section(member)]
    return [
        field.alias or name for section in sections for name, field in section.model_fields.items()
    ]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)

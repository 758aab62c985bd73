"""Kinds of connectors by the name that the YAML's ``type`` gives them.

Ours stand in a table. A package from elsewhere adds its own by an entry point of the table's group:
its name is the ``type``, its value the class of the YAML section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError, core_schema

from tidemill.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema, InitErrorDetails


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds of one sort of connector. As a field's annotation, what the YAML may name."""

    group: str  # of entry points: tidemill.logs
    builtin: Mapping[str, str]  # type: "module:Class"

    def names(self) -> list[str]:
        """Every ``type`` that can be given: ours first."""
        return [*self.builtin, *sorted(self._installed().keys() - self.builtin.keys())]

    def find(self, name: str) -> type[Any]:
        """The section of a kind, imported when it is asked for; one of ours cannot be replaced."""
        if name in self.builtin:
            module, _, section = self.builtin[name].partition(":")
            found = getattr(import_module(module), section)
        else:
            installed = self._installed().get(name)
            if installed is None:
                raise ConfigError(f"unknown type {name!r}", fix=nearest(name, self.names()))
            found = _load(installed)
        assert isinstance(found, type)
        return found

    def sections(self) -> list[type[Any]]:
        """The sections of all kinds."""
        return [self.find(name) for name in self.names()]

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A mapping becomes the section that its ``type`` names."""
        del source, handler
        written = core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True)
        return core_schema.no_info_plain_validator_function(self._read, serialization=written)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Editors are shown our own kinds, whatever else is installed."""
        del schema
        shown = {name: handler(self.find(name).__pydantic_core_schema__) for name in self.builtin}
        refs = {name: found["$ref"] for name, found in shown.items() if "$ref" in found}
        return {
            "discriminator": {"mapping": refs, "propertyName": "type"},
            "oneOf": list(shown.values()),
        }

    def _read(self, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value
        name = value.get("type") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self.names():
            raise PydanticCustomError("union_tag_invalid", "unknown type")
        try:
            return self.find(name).model_validate(value)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                error.title, [_below(name, found) for found in error.errors(include_url=False)]
            ) from None


def _below(name: str, found: Any) -> InitErrorDetails:
    """A mistake with its kind in its place, as pydantic names the member of a union."""
    return {
        "type": found["type"],
        "loc": (name, *found["loc"]),
        "input": found["input"],
        "ctx": found.get("ctx", {}),
    }


def _dump(value: Any, info: core_schema.SerializationInfo) -> Any:
    if not isinstance(value, BaseModel):
        return value
    return value.model_dump(mode=info.mode, by_alias=bool(info.by_alias))


def _load(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise ConfigError(
            f"the connector {point.name!r} cannot be loaded: {error}",
            where=f"entry point {point.group}: {point.value}",
            fix="install what it needs, or remove its package",
        ) from error

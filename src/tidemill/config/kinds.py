"""Kinds of connectors by the name that the YAML's ``type`` gives them.

Ours stand in a table. A package from elsewhere adds its own by an entry point of the table's group:
its name is the ``type``, its value the class of the YAML section.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
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
    builtin: Mapping[str, str]  # from a type to its "module:Class"
    default: str | None = None  # the type of a section that names none

    def names(self) -> list[str]:
        """Every ``type`` that can be given: ours first."""
        return [*self.builtin, *sorted(_added(self.group).keys() - self.builtin.keys())]

    def find(self, name: str) -> type[Any]:
        """The section of a kind, imported when it is asked for; one of ours cannot be replaced."""
        if name in self.builtin:
            module, _, section = self.builtin[name].partition(":")
            found = getattr(import_module(module), section)
        else:
            added = _added(self.group).get(name)
            if added is None:
                raise ConfigError(f"unknown type {name!r}", fix=nearest(name, self.names()))
            found = _load(added)
        assert isinstance(found, type)
        return found

    def name_of(self, value: Mapping[str, Any]) -> Any:
        """The type of a section of the YAML. One without a type has that of its keys.

        The section of that kind may then ask for the type to be said.
        """
        if "type" in value or self.default is None or self._own_keys(self.default, value):
            return value.get("type", self.default)
        return max(self.builtin, key=lambda name: self._own_keys(name, value))

    def _own_keys(self, name: str, value: Mapping[str, Any]) -> int:
        """How many keys the value has that this kind requires."""
        fields = self.find(name).model_fields
        return len({key for key, found in fields.items() if found.is_required()} & value.keys())

    def sections(self) -> list[type[Any]]:
        """The sections of all kinds that can be loaded."""
        found = []
        for name in self.names():
            with suppress(ConfigError):
                found.append(self.find(name))
        return found

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
        name = self.name_of(value) if isinstance(value, Mapping) else self.default
        if not isinstance(name, str) or (name not in self.builtin and name not in self.names()):
            raise PydanticCustomError("union_tag_invalid", "unknown type")
        try:
            section = self.find(name)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.fix}") from None
        try:
            return section.model_validate(value)
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


def _added(group: str) -> Mapping[str, EntryPoint]:
    """What installed packages add to a table."""
    return {point.name: point for point in entry_points(group=group)}


def _load(point: EntryPoint) -> type[Any]:
    try:
        found = point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.value
        raise ConfigError(
            f"the type {point.name!r} cannot be loaded from the package {package}: {error}",
            fix="install what the package needs, or remove it",
        ) from error
    if not isinstance(found, type):
        raise ConfigError(
            f"the type {point.name!r} is {point.value}, which is no class",
            fix="let the entry point name the class of the YAML section",
        )
    return found

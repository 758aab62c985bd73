"""The table in which the ``type`` of a YAML section finds its connector.

Built-in connectors are named here as text, so that none is imported before it is used. A package
adds its own by an entry point of the table's group; nothing else has to know of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from tidemill.config.section import Section
from tidemill.errors import ConfigError, nearest

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SerializationInfo
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


@dataclass(frozen=True)
class Kinds:
    """The connectors of one contract, by the ``type`` that the YAML gives them.

    As metadata of an annotation, ``Annotated[SinkSection, SINKS]``, it checks a section of the YAML
    by the class of its type.
    """

    group: str
    builtin: Mapping[str, str] = field(hash=False)  # type: "module:Class" of the section
    default: str | None = None  # the type of a section that names none, if its keys do not tell

    def names(self) -> tuple[str, ...]:
        """All types: the built-in ones first, then those of packages."""
        return tuple(dict.fromkeys((*self.builtin, *_added(self.group))))

    def find(self, name: str) -> type[Any]:
        """The section's class. The first call for a type imports its connector."""
        added = _added(self.group)
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            found: type[Any] = getattr(importlib.import_module(module), attribute)
        elif name in added:
            found = _load(name, added[name])
        else:
            raise ConfigError(f"unknown type {name!r}", fix=nearest(name, self.names()))
        return found

    def of(self, value: object) -> type[Any]:
        """The class that checks this value of the YAML."""
        if not isinstance(value, Mapping):
            return self.find(self.default or self.names()[0])
        named = value.get("type", self._guess(value))
        if not isinstance(named, str):
            raise ConfigError(f"unknown type {named!r}", fix=nearest(str(named), self.names()))
        return self.find(named)

    def _guess(self, value: Mapping[str, object]) -> str:
        """Of a section without ``type`` the kind whose keys it has; that kind may ask for it."""
        if self.default is not None and not self._common(self.default, value):
            return max(self.builtin, key=lambda name: self._common(name, value))
        return self.default or self.names()[0]

    def _common(self, name: str, value: Mapping[str, object]) -> int:
        """How many keys the value has that are this kind's own."""
        section = self.find(name)
        own = {key for key, found in section.model_fields.items() if found.is_required()}
        return len(own & value.keys())

    def validate(self, value: object) -> Any:
        """A section of the YAML as its class; what is checked already stays as it is."""
        if isinstance(value, Section):
            return value
        try:
            section = self.of(value)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.fix}") from None
        return section.model_validate(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """How pydantic checks and writes such a section."""
        from pydantic_core import core_schema

        def write(section: Any, info: SerializationInfo) -> Any:
            return section.model_dump(mode=info.mode, by_alias=bool(info.by_alias))

        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(write, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The built-in kinds, for editors; a package's kind is any other section."""
        sections = [self.find(name) for name in self.builtin]
        return {"anyOf": [handler(section.__pydantic_core_schema__) for section in sections]}


@cache
def _added(group: str) -> Mapping[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=group)}


def _load(name: str, entry: EntryPoint) -> type[Any]:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        package = entry.dist.name if entry.dist is not None else entry.value
        raise ConfigError(
            f"the type {name!r} cannot be loaded from the package {package}: {error}",
            fix="install what the package needs, or remove it",
        ) from None
    if not isinstance(found, type):
        raise ConfigError(
            f"the type {name!r} is {entry.value}, which is no class",
            fix="let the entry point name the class of the YAML section",
        )
    return found

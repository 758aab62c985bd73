"""What all sections share: frozen, no unknown keys, and fields written as people write them."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)

from tidemill.errors import ConfigError
from tidemill.types import parse_duration, show_duration


class Section(BaseModel):
    """The base of every section of the YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Columns = Annotated[list[str], BeforeValidator(_as_list)]
"""Names of columns in YAML: one, or a list."""


def _function(value: str) -> str:
    module, _, name = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError(f"a function is written module:function, found {value!r}")
    return value


FunctionName = Annotated[str, AfterValidator(_function)]
"""A function of the user's in YAML: ``module:function``, of a module beside the YAML."""
FunctionNames = Annotated[list[FunctionName], BeforeValidator(_as_list)]
"""Functions in YAML: one, or a list."""


def _duration(value: Any) -> timedelta:
    try:
        return parse_duration(value)
    except ConfigError as error:
        raise ValueError(f"{error.message}; {error.fix}") from None


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(show_duration, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"const": 0}],
            "description": "A duration: '10 min', '1h', '250 ms', 'PT15M'.",
            "examples": ["10 min", "1h", "PT15M"],
        }
    ),
]
"""A duration in YAML: ``10 min``, ``1h``, ``PT15M``."""

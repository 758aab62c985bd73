"""What a user writes: ``@pipeline`` on a function from DataFrames to DataFrames."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    Outputs: TypeAlias = DataFrame | dict[str, DataFrame]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline function with the streams and reference tables it reads, and its parameters.

    ``instances`` is the argument that gets the pipeline's instances, if it has any.

    What ``@pipeline`` makes has all arguments in ``streams``: which of them are streams, tables or
    parameters is known when the function is loaded for a pipeline of the YAML.

    Called on the driver, more than once per run (to analyse, then to run): it must only build
    DataFrames. Reading the clock, random numbers or a service in it breaks the promise of equal
    rows. It can still be called as the plain function it was.
    """

    function: Callable[..., Outputs]
    streams: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    instances: str | None = None

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.function.__name__

    def __call__(self, *frames: Any, **named: Any) -> Outputs:
        """Call the function itself: a pipeline can be used inside another or in a test."""
        return self.function(*frames, **named)


def pipeline(function: Callable[..., Outputs]) -> Pipeline:
    """Mark a function as a pipeline; its arguments have the names of streams and parameters."""
    arguments = inspect.signature(function).parameters.values()
    for argument in arguments:
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            raise ConfigError(
                f"the pipeline {function.__name__} takes *{argument.name}",
                fix="name every stream and every parameter as an argument of its own",
            )
    if not arguments:
        raise ConfigError(
            f"the pipeline {function.__name__} reads no stream",
            fix="give it one argument per stream, named as in the YAML's streams:",
        )
    return Pipeline(function, tuple(argument.name for argument in arguments))

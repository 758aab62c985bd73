"""What a user writes: ``@pipeline`` on a function from DataFrames to DataFrames."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    Outputs: TypeAlias = DataFrame | dict[str, DataFrame]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline function with the names of the streams it reads.

    Called on the driver, more than once per run (to analyse, then to run): it must only build
    DataFrames. Reading the clock, random numbers or a service in it breaks the promise of equal
    rows. It can still be called as the plain function it was.
    """

    function: Callable[..., Outputs]
    streams: tuple[str, ...]

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.function.__name__

    def __call__(self, *frames: DataFrame, **named: DataFrame) -> Outputs:
        """Call the function itself: a pipeline can be used inside another or in a test."""
        return self.function(*frames, **named)


def pipeline(function: Callable[..., Outputs]) -> Pipeline:
    """Mark a function as a pipeline; its parameters' names are the streams it reads."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"the pipeline {function.__name__} takes *{parameter.name}",
                fix="name every stream as a parameter of its own",
            )
    if not parameters:
        raise ConfigError(
            f"the pipeline {function.__name__} reads no stream",
            fix="give it one parameter per stream, named as in the YAML's streams:",
        )
    return Pipeline(function, tuple(parameter.name for parameter in parameters))

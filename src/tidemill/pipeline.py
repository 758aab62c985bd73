"""What a user writes: ``@pipeline`` on a function, functions beside it, what these are told."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    Outputs: TypeAlias = DataFrame | dict[str, DataFrame]


@dataclass(frozen=True)
class BatchCommit:
    """What ``before_commit`` and ``after_commit`` are told of a batch. It can be kept or pickled.

    ``ranges`` has the ingest times ``(from, to)`` of the slices that the batch has read, by source;
    a source of which it has read none is not there. The last slice of a run with a planned end goes
    on to the year 9999. ``on_time``, ``late`` and ``dead`` count rows that were read, ``written``
    those that each output gets.

    ``repeat``: this function may have been called for this batch of this run before, with the same
    numbers, unless the pipeline's code was corrected since, before the first commit. For one batch
    ``repeat`` is never false twice. The easy mistake is to take a repeat for a proof: the driver
    may have been killed just before it called.
    """

    run: str
    pipeline: str
    batch: int
    ranges: Mapping[str, tuple[datetime, datetime]]
    on_time: int
    late: int
    dead: int
    written: Mapping[str, int]
    repeat: bool = False


@dataclass(frozen=True)
class NamedFunction:
    """A function of the user's by the name that the YAML gives it: ``module:function``."""

    name: str
    function: Callable[..., Any]


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
    read_from: Mapping[str, str] = field(default_factory=dict)  # streams by argument, if renamed
    interceptors: tuple[NamedFunction, ...] = ()
    callbacks: Mapping[str, NamedFunction] = field(default_factory=dict)  # by key of the YAML
    sql: str | None = None  # of one that is SQL: the name of its text, as people are told
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

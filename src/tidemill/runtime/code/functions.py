"""Functions that the YAML names beside a pipeline's code: interceptors and callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tidemill.config.document import Document
from tidemill.config.loader import LoadedConfig
from tidemill.errors import ConfigError, nearest
from tidemill.pipeline import NamedFunction
from tidemill.runtime.code.importing import import_own

_INTERCEPTOR = ("place", "name", "frame")
_CALLBACK = ("commit",)


def find_interceptors(loaded: LoadedConfig, pipeline: str) -> tuple[NamedFunction, ...]:
    """The interceptors of a pipeline, the project's first. Imports their modules."""
    own, keys = loaded.config.pipelines[pipeline], ("pipelines", pipeline)
    named: dict[str, tuple[str | int, ...]] = {}
    for at, entry in enumerate(loaded.config.interceptors):
        named.setdefault(entry, ("interceptors", at))
    for at, entry in enumerate(own.interceptors):
        named.setdefault(entry, (*keys, "interceptors", at))
    return tuple(_find(loaded, at, entry, _INTERCEPTOR) for entry, at in named.items())


def find_callbacks(loaded: LoadedConfig, pipeline: str) -> dict[str, NamedFunction]:
    """The callbacks of a pipeline, by key. Imports their modules."""
    return {
        key: _find(loaded, ("pipelines", pipeline, key), entry, _CALLBACK)
        for key, entry in loaded.config.pipelines[pipeline].callbacks.items()
    }


def _find(
    loaded: LoadedConfig, keys: tuple[str | int, ...], entry: str, arguments: tuple[str, ...]
) -> NamedFunction:
    """The function that the YAML names at ``keys``; it must take these arguments, by position."""
    where = f"{loaded.path}:{Document(loaded.path).line(keys)} ({'.'.join(map(str, keys))})"
    module_name, _, function_name = entry.partition(":")
    module = import_own(loaded.base, module_name, where)
    function = getattr(module, function_name, None)
    if function is None:
        own = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        fix = nearest(function_name, own)
        raise ConfigError(f"{module_name}.py has no {function_name!r}", where=where, fix=fix)
    call = f"{function_name}({', '.join(arguments)})"
    if not callable(function):
        raise ConfigError(f"{entry} is not a function", where=where, fix=f"write def {call}: …")
    if not _takes(function, len(arguments)):
        raise ConfigError(
            f"{entry} takes {_told(function)}, and is called with {', '.join(arguments)}",
            where=where,
            fix=f"write def {call}: …",
        )
    return NamedFunction(entry, function)


def _takes(function: Callable[..., Any], number: int) -> bool:
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell its arguments
        return True
    return True


def _told(function: Callable[..., Any]) -> str:
    names = list(inspect.signature(function).parameters)
    return ", ".join(names) or "no arguments"

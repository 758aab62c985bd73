"""Bind what a pipeline's code asks for by name: streams, tables, and values of parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from tidemill.config.document import Document
from tidemill.errors import ConfigError, RunError, nearest
from tidemill.planning.code.params import TYPES, Param, kind_of, read_value, write

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest

_NEEDED = inspect.Parameter.empty
_NOT_CODE = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_MARKER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")


@dataclass(frozen=True)
class GivenParams:
    """The values that a plan or a run gives a pipeline, and where each of them is written.

    A plan takes those of the YAML, and those it was asked with before them. A run takes the
    ``pinned`` ones of its manifest and no others, whatever the YAML says by then.
    """

    loaded: LoadedConfig
    pipeline: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    pinned: Mapping[str, Param] | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All values by name, as they were written."""
        if self.pinned is not None:
            return {name: pin.read() for name, pin in self.pinned.items()}
        return {**self._written, **self.asked}

    @property
    def _written(self) -> dict[str, Any]:
        return self.loaded.config.pipelines[self.pipeline].params

    def like(self, name: str) -> str | None:
        """The type of a value that stands in the YAML, for a parameter that tells none itself."""
        value = None if self.pinned is not None else self._written.get(name)
        return None if value is None else kind_of(value)

    def where(self, name: str) -> str:
        """The place at which a value is, or would be, written."""
        if self.pinned is not None and name in self.pinned:
            return f"the run's manifest (code.params.{name})"
        if name in self.asked:
            return f"--param {name}={write(self.asked[name])}"
        keys = ("pipelines", self.pipeline, *(("params", name) if name in self._written else ()))
        return f"{self.loaded.path}:{Document(self.loaded.path).line(keys)} ({'.'.join(keys)})"

    def error(self, name: str, message: str, fix: str) -> ConfigError:
        """What is wrong with a value. A run has no other: there the code must be as it was."""
        restore = "restore the code as it was when the run was planned, or start a new run"
        return ConfigError(
            message,
            where=self.where(name),
            fix=fix if self.pinned is None else restore,
            param=name,
        )


@dataclass(frozen=True)
class Argument:
    """Something that the code asks for by name."""

    name: str
    told: str  # what it is, and where: the argument 'campaign' of shows() (pipelines.py:9)
    annotation: Any = None  # None: there is none, or nobody knows what it means here
    default: Any = _NEEDED
    is_marker: bool = False  # of SQL: it cannot be a stream or a table

    @property
    def is_needed(self) -> bool:
        """Whether it has no default."""
        return self.default is _NEEDED

    @property
    def may_be_null(self) -> bool:
        """Whether it takes null."""
        return self.default is None or NoneType in get_args(self.annotation)

    @property
    def kind(self) -> str | None:
        """The name of the type that a parameter must have here; None: any of them."""
        if self.annotation not in (None, Any):
            kind = self._only
            return kind.__name__ if kind in TYPES.values() else None
        is_plain = type(self.default) in TYPES.values()
        return type(self.default).__name__ if is_plain else None

    @property
    def is_other(self) -> bool:
        """Whether its annotation is of something that no parameter can be."""
        return self.annotation not in (None, Any) and self._only not in TYPES.values()

    @property
    def _only(self) -> Any:
        """The type of an annotation, without the None of ``str | None``."""
        if get_origin(self.annotation) not in (Union, UnionType):
            return self.annotation
        kinds = [kind for kind in get_args(self.annotation) if kind is not NoneType]
        return kinds[0] if len(kinds) == 1 else None


def arguments_of(function: Callable[..., Any], base: Path) -> list[Argument]:
    """The arguments of a Python function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = Path(code.co_filename) if code else None
    shown = file.relative_to(base) if file and file.is_relative_to(base) else file and file.name
    told = f"{function.__name__}()" + (f" ({shown}:{code.co_firstlineno})" if code else "")
    return [
        Argument(
            name, f"the argument {name!r} of {told}", _resolved(function, found), found.default
        )
        for name, found in inspect.signature(function).parameters.items()
    ]


def _resolved(function: Callable[..., Any], found: inspect.Parameter) -> Any:
    """What an annotation stands for. One at a time: names may be imported for a type checker."""
    if found.annotation is found.empty:
        return None
    alone: Any = SimpleNamespace(__annotations__={found.name: found.annotation})
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        return get_type_hints(alone, names)[found.name]
    except Exception:  # whatever an expression of the user's may raise
        return None


def markers_of(text: str, file: str | None) -> list[Argument]:
    """The parameter markers of an SQL text, ``:campaign``; not those in texts and comments."""
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    markers: dict[str, Argument] = {}
    for found in _MARKER.finditer(code):
        line = code.count("\n", 0, found.start()) + 1
        place = f"{file}:{line}" if file else f"line {line}"
        told = f"the marker ':{found[1]}' of the SQL ({place})"
        markers.setdefault(found[1], Argument(found[1], told, is_marker=True))
    return list(markers.values())


def find_instances(
    arguments: Iterable[Argument], frames: Mapping[str, str], has_section: bool, where: str
) -> str | None:
    """The argument that gets the pipeline's instances: the one annotated with ``Instances``."""
    from tidemill.instances import Instances

    found = [each for each in arguments if each.annotation is Instances]
    if not found and not has_section:
        return None
    if not found:
        raise ConfigError(
            "the pipeline has instances:, and no argument of its code gets them",
            where=where,
            fix="annotate one with the class itself: 'from tidemill import Instances', not under "
            "TYPE_CHECKING, then incentives: Instances",
        )
    first = found[0]
    if not has_section:
        raise ConfigError(
            f"{first.told} gets instances, and the pipeline has none",
            where=where,
            fix="add instances: {table: …, id: …, from: …, to: …} to the pipeline",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{found[1].told} gets instances, and so does {first.name!r}",
            where=where,
            fix="a pipeline has one kind of instances: use one argument at both places",
        )
    if first.name in frames:
        raise ConfigError(
            f"{first.told} gets instances, and has the name of a {frames[first.name]}",
            where=where,
            fix=f"rename it, or the {frames[first.name]}",
        )
    return first.name


def bind(
    arguments: Iterable[Argument], frames: Mapping[str, str], given: GivenParams
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The streams and tables that the code reads, and the values of its parameters.

    ``frames`` says of each name whether it is a ``stream`` or a ``table``. An argument of such a
    name is that; any other is a parameter. Where its default is of a type that no parameter has, it
    is the function's own affair.
    """
    arguments, values = list(arguments), given.values
    # A stream or a table may have got the name since.
    frames = {name: kind for name, kind in frames.items() if name not in (given.pinned or ())}
    for name in values:
        _require_place(name, arguments, frames, given)
    read, params = [], {}
    for argument in arguments:
        if argument.name in frames:
            _require_frame(argument, frames[argument.name], given)
            read.append(argument.name)
        elif argument.name in values:
            params[argument.name] = _value(argument, values[argument.name], given)
        elif argument.is_needed:
            raise _missing(argument, frames, given)
        elif argument.default is None or type(argument.default) in TYPES.values():
            params[argument.name] = _value(argument, argument.default, given)
    return tuple(read), params


def _require_place(
    name: str, arguments: list[Argument], frames: Mapping[str, str], given: GivenParams
) -> None:
    """A value must have an argument that takes it."""
    if name in frames:
        message = f"{name!r} is the name of a {frames[name]} and of a parameter"
        raise given.error(name, message, "give the parameter another name")
    found = next((each for each in arguments if each.name == name), None)
    if found is None:
        known = [each.name for each in arguments if each.name not in frames]
        fix = nearest(name, known) if known else "the code takes no parameters; leave it out"
        raise given.error(name, f"the code takes no parameter {name!r}{_whose(arguments)}", fix)
    if found.is_other:
        shown = getattr(found.annotation, "__name__", found.annotation)
        message = f"{found.told} takes a {shown}, which no parameter can be"
        raise given.error(name, message, f"annotate it with one of {', '.join(TYPES)}")


def _whose(arguments: list[Argument]) -> str:
    """Whose arguments these are: ``: shows() (pipelines.py:9)``."""
    _, _, code = arguments[0].told.partition(" of ") if arguments else ("", "", "")
    return f": {code}" if code else ""


def _require_frame(argument: Argument, kind: str, given: GivenParams) -> None:
    if argument.is_marker or (argument.annotation is not None and argument.kind is not None):
        annotated = "" if argument.is_marker else f"is annotated as {argument.kind} and "
        raise given.error(
            argument.name,
            f"{argument.told} {annotated}has the name of a {kind}",
            f"rename it, or the {kind}",
        )


def _value(argument: Argument, value: Any, given: GivenParams) -> Any:
    kind = argument.kind or given.like(argument.name)
    try:
        return read_value(value, kind, may_be_null=argument.may_be_null or kind is None)
    except ConfigError as error:
        message = f"{argument.told}: {error.message}"
        raise given.error(argument.name, message, error.fix) from None


def _missing(argument: Argument, frames: Collection[str], given: GivenParams) -> ConfigError:
    name = argument.name
    give = f"add params: {{{name}: …}} to the pipeline, or give --param {name}=…"
    if argument.kind is not None or argument.is_marker:
        return given.error(name, f"{argument.told} has no value", give)
    known = {*frames, *given.values}
    message = f"{argument.told} is neither a stream nor in tables:, sources: or params:"
    return given.error(name, message, nearest(name, known))


def require_same_params(manifest: Manifest, asked: Mapping[str, Any]) -> None:
    """Refuse to go on with other values than those with which the run was planned."""
    for name, problem, fix in _differences(manifest.code.params, asked):
        raise RunError(problem, where=f"run {manifest.run}", fix=fix, param=name)


def _differences(
    pinned: Mapping[str, Param], asked: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    for name, value in asked.items():
        if name not in pinned:
            yield name, f"the run has no parameter {name!r}", nearest(name, pinned)
            continue
        pin = pinned[name]
        try:
            kind = pin.type if pin.type in TYPES else None
            is_same = read_value(value, kind, may_be_null=True) == pin.read()
        except ConfigError:
            is_same = False
        if not is_same:
            yield (
                name,
                f"the run was planned with {name}={write(pin.read())}, not with {write(value)}",
                "leave --param out: a run keeps its values; or start a new run with other ones, "
                "because old and new rows must not be mixed",
            )

"""Digests of the Python code inside a plan: one per function, class and package.

The digest of a function covers its instructions, constants, defaults and closure values, and the
global values and functions that it names, from module to module, as far as they are the user's own.
It holds no address, no line number, no comment and no docstring, and does not depend on the order
of sets, so two processes compute the same digest. An installed package counts by its version and
its list of files.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import importlib
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, cast

from tidemill.planning.code.behaviour import behaviour_line
from tidemill.runtime.code.packages import Origin, find_origin

_PLAIN = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str)
_SILENT = frozenset(("NOP", "EXTENDED_ARG", "CACHE", "RESUME", "PRECALL"))
_UNTOLD = frozenset(
    (
        *("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__qualname__"),
        *("__firstlineno__", "__static_attributes__", "_abc_impl", "__annotate_func__"),
        *("__annotations_cache__", "__orig_bases__", "__parameters__"),
    )
)
_LONG = 200


def carried_lines(roots: Iterable[tuple[str, object]]) -> list[str]:
    """Behaviour lines of these objects and everything they refer to, in a stable order.

    Each object comes with its description. The user's own functions and classes come first, because
    in an error the name of a changed function says more than the object that uses it.
    """
    found = _Carried()
    values = [(words, found.token(root)) for words, root in roots]
    head = [behaviour_line(f"Python {sys.version_info[0]}.{sys.version_info[1]}")] if values else []
    parts = [behaviour_line(name, f"{name} {found.lines[name]}") for name in sorted(found.lines)]
    return [*head, *parts, *(behaviour_line(w, f"{w} {token}") for w, token in values)]


class _Carried:
    """Follows references. Each function and class of the user becomes a line of its own.

    Whatever refers to such a function or class then holds only its name.
    """

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # what has a name stays alive, so that ids stay unique
        self._open: list[int] = []  # containers that are being followed

    def token(self, value: Any) -> str:
        """A text that is equal for equal values, in every process."""
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum):
            return _short(f"{type(value).__name__} {value!r}")
        if isinstance(value, bytes | bytearray | memoryview):
            return f"bytes {hashlib.sha256(bytes(value)).hexdigest()}"
        if id(value) in self._open:
            return f"cycle {len(self._open) - self._open.index(id(value))}"
        self._open.append(id(value))
        try:
            return _short(self._composite(value))
        finally:
            self._open.pop()

    def _composite(self, value: Any) -> str:
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return f"method {self.token(value.__self__)} {self.token(value.__func__)}"
        if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType):
            return f"builtin {value.__qualname__}"
        if isinstance(value, types.ModuleType):
            return self._module(value, set())
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__} {self.token(value.__func__)}"
        if isinstance(value, property):
            return f"property {self._all((value.fget, value.fset, value.fdel))}"
        if isinstance(value, enum.Enum):
            return f"{self.token(type(value))}.{value.name}"
        if isinstance(value, tuple | list):
            return f"{self.token(type(value))} [{self._all(value)}]"
        if isinstance(value, set | frozenset):
            return f"set [{', '.join(sorted(map(self.token, value)))}]"
        if isinstance(value, dict | types.MappingProxyType):
            return f"mapping {self._pairs(value)}"
        return self._object(value)

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join(self.token(value) for value in values)

    def _pairs(self, values: Mapping[Any, Any]) -> str:
        found = sorted((self.token(key), self.token(value)) for key, value in values.items())
        return f"{{{', '.join(f'{key}: {value}' for key, value in found)}}}"

    def _function(self, value: types.FunctionType) -> str:
        own = [value.__defaults__, value.__kwdefaults__, *map(_content, value.__closure__ or ())]
        name = f"{value.__module__}.{value.__qualname__}"
        if find_origin(value.__module__) is not Origin.OWN:
            return f"{self._foreign(value.__module__)} {name} {self._all(own)}"
        return self._line(
            "function",
            name,
            value,
            lambda: f"{self._code(value.__code__)} {self._all(own)} {self._globals(value)}",
        )

    def _class(self, value: type) -> str:
        name = f"{value.__module__}.{value.__qualname__}"
        if find_origin(value.__module__) is not Origin.OWN:
            return f"{self._foreign(value.__module__)} {name}"
        return self._line(
            "class",
            name,
            value,
            lambda: (
                f"{self._all(value.__bases__)} "
                + self._pairs({k: v for k, v in vars(value).items() if k not in _UNTOLD})
            ),
        )

    def _line(self, kind: str, name: str, value: Any, tell: Any) -> str:
        """Write the line of a function or class, if that was not done yet, and return its name."""
        if id(value) not in self._names:
            label, number = f"{kind} {name}", 1
            while label in self.lines:
                number += 1
                label = f"{kind} {name} ({number})"
            self._names[id(value)] = label
            self._kept.append(value)
            self.lines[label] = ""
            self.lines[label] = _short(tell())
        return self._names[id(value)]

    def _globals(self, function: types.FunctionType) -> str:
        names, attributes, imports = _named(function.__code__)
        found = function.__globals__
        told = [
            f"{name}: {self._named_value(found[name], attributes)}"
            for name in sorted(names)
            if name in found
        ]
        for level, name in sorted(imports):
            module = _imported(name, level, found)
            told.append(f"import {self._module(module, attributes) if module else name}")
        return f"{{{', '.join(told)}}}"

    def _named_value(self, value: Any, attributes: Set[str]) -> str:
        if isinstance(value, types.ModuleType):
            return self._module(value, attributes)
        return self.token(value)

    def _module(self, module: types.ModuleType, attributes: Set[str]) -> str:
        """Describe a module by those of its values that the code may name."""
        name = module.__name__
        if find_origin(name) is not Origin.OWN:
            return f"{self._foreign(name)} {name}"
        if id(module) in self._open[:-1]:
            return f"module {name}"
        self._open.append(id(module))
        try:
            used = sorted(attributes & vars(module).keys())
            parts = [f"{n}: {self._named_value(vars(module)[n], attributes)}" for n in used]
            return _short(f"module {name} {{{', '.join(parts)}}}")
        finally:
            self._open.pop()

    def _foreign(self, module: str) -> str:
        """Describe code that is not the user's by its package, which becomes a line."""
        origin = find_origin(module)
        if isinstance(origin, str):
            name, _, files = origin.partition(" files ")
            self.lines.setdefault(f"package {name}", files)
        return "foreign"

    def _code(self, code: types.CodeType) -> str:
        parts = [
            f"{name} {self.token(argument) if name in _CONSTANTS else argument}"
            for name, argument in _instructions(code)
        ]
        arguments = code.co_argcount + code.co_kwonlyargcount
        head = (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        return _short(f"code {head} {code.co_varnames[:arguments]} {parts} {_handlers(code)}")

    def _object(self, value: Any) -> str:
        """Describe an instance by its class and its state, as pickle would see it."""
        kind = self.token(type(value))
        if type(value).__module__ == "pyspark.core.broadcast":
            return f"broadcast {self.token(value.value)}"
        try:
            made = value.__reduce_ex__(4)
        except Exception:  # it cannot be pickled: its class is all there is to tell
            return f"{kind} {self._pairs(getattr(value, '__dict__', {}))}"
        if isinstance(made, str):
            return f"{kind} {made}"
        parts = [list(part) if isinstance(part, Iterator) else part for part in made]
        return f"{kind} {self._all(parts[1:])}"


_CONSTANTS = frozenset(("LOAD_CONST", "RETURN_CONST", "KW_NAMES"))
_POSITIONS = frozenset((*dis.hasjrel, *dis.hasjabs))
_TOLD = frozenset((*dis.hasname, *dis.hascompare)) - {*dis.haslocal, *dis.hasfree}


def _instructions(code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """The instructions, without line numbers and docstrings; jumps go to instruction numbers."""
    kept = [each for each in dis.get_instructions(code) if each.opname not in _SILENT]
    place = _places(code)
    for at, each in enumerate(kept):
        follower = kept[at + 1] if at + 1 < len(kept) else None
        if follower and follower.opname == "STORE_NAME" and follower.argval == "__doc__":
            yield each.opname, None
        elif each.opcode in _POSITIONS:
            yield each.opname, place(each.argval)
        elif each.arg is not None and (each.opname in _CONSTANTS or each.opcode in _TOLD):
            yield each.opname, each.argval
        else:
            yield each.opname, each.arg


def _places(code: types.CodeType) -> Any:
    """A function from a byte offset to the number of the first instruction at or after it."""
    offsets = [e.offset for e in dis.get_instructions(code) if e.opname not in _SILENT]
    return lambda offset: sum(1 for each in offsets if each < offset)


def _handlers(code: types.CodeType) -> list[tuple[Any, ...]]:
    place, bytecode = _places(code), cast("Any", dis.Bytecode(code))
    return [  # typeshed does not know the attribute yet
        (place(e.start), place(e.end), place(e.target), e.depth, e.lasti)
        for e in bytecode.exception_entries
    ]


def _named(code: types.CodeType) -> tuple[set[str], set[str], set[tuple[int, str]]]:
    """The global names a code object may look up, the attributes, and the modules it imports."""
    names, attributes, imports = set[str](), set[str](), set[tuple[int, str]]()
    level = 0
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names.add(str(each.argval))
        elif each.opname == "IMPORT_NAME":
            imports.add((level, str(each.argval)))
        elif each.opcode in dis.hasname:
            attributes.add(str(each.argval))
        elif isinstance(each.argval, int) and each.opname == "LOAD_CONST":
            level = each.argval
        elif isinstance(each.argval, types.CodeType):
            inner = _named(each.argval)
            names |= inner[0]
            attributes |= inner[1]
            imports |= inner[2]
    return names, attributes, imports


def _imported(name: str, level: int, found: dict[str, Any]) -> types.ModuleType | None:
    """A module that a function imports when it is called."""
    package = str(found.get("__package__") or "")
    try:
        if level:
            return importlib.import_module("." * level + name, package)
        importlib.import_module(name)
        return sys.modules[name.partition(".")[0]]
    except Exception:
        return None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= _LONG else hashlib.sha256(text.encode()).hexdigest()

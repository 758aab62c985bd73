"""Record what a pipeline's code reads while it is imported and called, and check it again later.

A cached analysis holds this record: which files were opened, which folders were listed, which
environment variables were read, and which modules were loaded. If one of these has changed, the
cached analysis is not used. Values of variables are never stored, only digests of them. Some inputs
cannot be recorded: a service, the clock, files that a library opens outside of Python. They are
caught when a run starts and the code's behaviour is compared, see `runtime.code.sameness`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.jsonvalue import JsonValue
from tidemill.runtime.code.packages import OURS, distribution_of, is_python, record_of

_SHELL = frozenset(("_", "OLDPWD", "SHLVL"))
"""Variables that a shell changes from command to command."""
_PASSING = ("/proc/", "/dev/", "/sys/")
_IMPORT = ("importlib._bootstrap", "_frozen_importlib", "importlib.metadata")
_BETWEEN = (__name__, "os", "io", "pathlib", "glob", "codecs", "zipfile", "_collections_abc")
_WRITING = frozenset("wax")
_lock = threading.RLock()
_watching: list[tuple[int, Seen]] = []
_hooked: list[bool] = []


@dataclass
class Seen:
    """What the code has read. It holds values of variables, so it must not be stored."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    variables: dict[str, str | None] = field(default_factory=dict)
    all_names: bool = False

    def values(self) -> list[str]:
        """The values of the variables, any of which may be secret."""
        return [value for value in self.variables.values() if value is not None]

    def add(self, other: Seen) -> None:
        """Add what another watch has seen."""
        self.files |= other.files
        self.folders |= other.folders
        self.variables |= other.variables
        self.all_names = self.all_names or other.all_names


@dataclass(frozen=True)
class Looked(JsonValue):
    """Digests of everything that the code has read, without the values."""

    salt: str
    files: dict[str, str | None] = field(default_factory=dict)
    folders: dict[str, str | None] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)
    names: str | None = None

    @classmethod
    def now(cls, seen: Seen) -> Looked:
        """The digests as of now, with those of the loaded modules."""
        salt = secrets.token_hex(8)
        return cls(
            salt,
            {path: _file(path) for path in sorted(seen.files | _module_files())},
            {path: _folder(path) for path in sorted(seen.folders)},
            {name: _secret(salt, value) for name, value in sorted(seen.variables.items())},
            _names() if seen.all_names else None,
        )

    def is_unchanged(self) -> bool:
        """Whether everything that the code has read is still the same."""
        return (
            all(
                _secret(self.salt, os.environ.get(name)) == digest
                for name, digest in self.variables.items()
            )
            and (self.names is None or self.names == _names())
            and all(_folder(path) == digest for path, digest in self.folders.items())
            and all(_file(path) == digest for path, digest in self.files.items())
        )


@contextmanager
def watching() -> Iterator[Seen]:
    """Record what the user's code reads inside the block, in this thread."""
    with _lock:
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_heard)
        seen = Seen()
        _watching.append((threading.get_ident(), seen))
        try:
            with _reading():
                yield seen
        finally:
            _watching.pop()


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: Python calls it for every file it opens and every folder it lists."""
    if not _watching or event not in ("open", "os.listdir", "os.scandir"):
        return
    thread, seen = _watching[-1]
    if thread != threading.get_ident():
        return
    with suppress(Exception):
        path = "." if arguments[0] is None else arguments[0]
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        if name.startswith(_PASSING) or name.endswith((".pyc", ".py")) or _is_ours():
            return
        if event != "open":
            seen.folders.add(name)
        elif not _is_writing(arguments[1], arguments[2]):
            seen.files.add(name)


def _is_writing(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return bool(_WRITING & set(mode))
    return isinstance(flags, int) and flags & os.O_ACCMODE == os.O_WRONLY


@contextmanager
def _reading() -> Iterator[None]:
    """Record what is read from ``os.environ``, under whatever name the code has imported it."""
    kind: Any = type(os.environ)
    get, names = kind.__getitem__, kind.__iter__

    def noted_get(self: Any, key: Any) -> Any:
        value = None
        try:
            value = get(self, key)
            return value
        finally:
            _note(key, value)

    def noted_names(self: Any) -> Any:
        thread, seen = _watching[-1] if _watching else (0, Seen())
        seen.all_names = seen.all_names or thread == threading.get_ident()
        return names(self)

    kind.__getitem__, kind.__iter__ = noted_get, noted_names
    try:
        yield
    finally:
        kind.__getitem__, kind.__iter__ = get, names


def _note(key: object, value: object) -> None:
    if not _watching or not isinstance(key, str) or key in _SHELL:
        return
    thread, seen = _watching[-1]
    if thread == threading.get_ident() and key not in seen.variables and not _is_ours():
        seen.variables[key] = value if isinstance(value, str) else None


def _is_ours() -> bool:
    """Whether Spark, Python's import or Tidemill itself reads now, and not the user's code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] in OURS or name.startswith(_IMPORT)


def _module_files() -> set[str]:
    """The files of the user's loaded modules, and the RECORD files of installed packages."""
    found = set()
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        if not isinstance(file, str) or top in (*OURS, "__main__") or is_python(file):
            continue
        package = distribution_of(top, file)
        record = None if package is None else record_of(package)
        found.add(file if record is None else str(record))
    return found


def _file(path: str) -> str | None:
    try:
        with Path(path).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:24]
    except OSError:
        return None


def _folder(path: str) -> str | None:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return None
    return _joined(names)


def _names() -> str:
    return _joined(sorted(set(os.environ) - _SHELL))


def _joined(names: list[str]) -> str:
    return hashlib.sha256("\0".join(names).encode(errors="replace")).hexdigest()[:24]


def _secret(salt: str, value: str | None) -> str | None:
    if value is None:
        return None
    digest = hashlib.blake2b(value.encode(errors="replace"), key=salt.encode(), digest_size=12)
    return digest.hexdigest()

"""Whose code a module is: Python's own, an installed package's, or the user's own."""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

OURS = ("tidemill", "pyspark", "py4j")
"""Packages that never count as the user's code, wherever they are installed."""


class Origin(enum.Enum):
    """Where a module comes from, if it is not part of an installed package."""

    PYTHON = "python"
    OWN = "own"


def find_origin(module: str | None) -> Origin | str:
    """The origin of a module; for an installed package a text with name, version and files."""
    top = (module or "__main__").partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return Origin.PYTHON
    loaded = sys.modules.get(module or "") or sys.modules.get(top)
    return _origin(top, getattr(loaded, "__file__", None) or "")


@functools.lru_cache(maxsize=10_000)
def _origin(top: str, file: str) -> Origin | str:
    if top in OURS:
        return _told(metadata.distribution(top)) if top != "py4j" else Origin.PYTHON
    if top == "__main__":
        return Origin.OWN
    found = distribution_of(top, file)
    return Origin.OWN if found is None else _told(found)


def distribution_of(top: str, file: str) -> metadata.Distribution | None:
    """The installed package that a module's file belongs to."""
    for found, place in _candidates(top):
        if not file or Path(file).resolve().is_relative_to(place):
            return found
    return None


@functools.lru_cache(maxsize=10_000)
def _candidates(top: str) -> tuple[tuple[metadata.Distribution, Path], ...]:
    """The packages that have a module of this name, with the folders they are installed in."""
    found = [metadata.distribution(name) for name in _distributions().get(top, ())]
    return tuple((each, Path(str(each.locate_file(""))).resolve()) for each in found)


def record_of(distribution: metadata.Distribution) -> Path | None:
    """The file that lists a package's files with their digests, or else its metadata file."""
    folder = getattr(distribution, "_path", None)
    names = ("RECORD", "METADATA", "PKG-INFO")
    places = (Path(str(folder)) / name for name in names) if folder is not None else ()
    return next((place for place in places if place.is_file()), None)


def is_python(file: str) -> bool:
    """Whether a file belongs to Python's own library."""
    return any(Path(file).is_relative_to(place) for place in _libraries()) and (
        "site-packages" not in file and "dist-packages" not in file
    )


@functools.lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})


@functools.lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


def _told(distribution: metadata.Distribution) -> str:
    """Name and version, and a digest of the Python files and libraries as they were installed."""
    files = sorted(
        f"{path} {path.hash.value}"
        for path in distribution.files or ()
        if path.hash is not None and path.suffix in (".py", ".so", ".pyd")
    )
    digest = hashlib.sha256("\n".join(files).encode()).hexdigest()
    return f"{distribution.metadata['Name']} {distribution.version} files {digest}"

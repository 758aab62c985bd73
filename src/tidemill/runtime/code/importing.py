"""Import the user's modules as their files are now, and say where errors of theirs come from."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tidemill.errors import ConfigError, TidemillError
from tidemill.runtime.code.packages import Origin, find_origin

_loaded: set[str] = set()
"""The user's own modules (not installed packages) that earlier loads have imported."""


_SESSION = ("SESSION", "SparkContext", "SparkSession", "_jvm", "get_active_spark_context")
"""Words of PySpark's errors where there is no session."""
_NO_SESSION = (
    "there is no Spark session while a module is imported: give a type as an object, "
    '@F.udf(StringType()) instead of @F.udf("string"), and use columns only inside of functions'
)


def begin_imports(base: Path) -> None:
    """Look for modules in the project's folder first, and import each as its file is now.

    Modules of the user that an earlier load imported are dropped: their files may have changed, and
    two projects in one process may use the same module names.
    """
    for earlier in _loaded:
        sys.modules.pop(earlier, None)
    _loaded.clear()
    if str(base) in sys.path:
        sys.path.remove(str(base))
    sys.path.insert(0, str(base))
    importlib.invalidate_caches()


def import_own(base: Path, name: str, where: str) -> ModuleType:
    """Import a module of the project's folder; all modules of one load see one another's."""
    before = set(sys.modules)
    try:
        return _import_module(base, name, where)
    finally:
        fresh = set(sys.modules) - before
        _loaded.update(found for found in fresh if find_origin(found) is Origin.OWN)


def _import_module(base: Path, name: str, where: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{name}.py imports {error.name!r}, which is not installed",
                where=where,
                fix=f"install {error.name} into the environment Tidemill runs in",
            ) from None
        raise ConfigError(
            f"there is no module {name!r} in {base}",
            where=where,
            fix=f"write {name.replace('.', '/')}.py beside the YAML",
        ) from None
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename}:{error.lineno}: {error.msg}", where=where, fix="correct the line"
        ) from None
    except TidemillError:
        raise
    except (Exception, SystemExit) as error:
        needs_spark = any(word in f"{type(error).__name__} {error}" for word in _SESSION)
        raise ConfigError(
            f"{name}.py cannot be imported: {describe(error, base)}",
            where=where,
            fix=_NO_SESSION
            if needs_spark
            else "a module of pipelines only defines them; --verbose shows the trace",
        ) from error


def describe(error: BaseException, folder: Path) -> str:
    """An error of the user's code, with the last line in that folder: ``… (pipelines.py:12)``."""
    place = place_in(error, folder)
    return f"{type(error).__name__}: {error}" + (f" ({place})" if place else "")


def place_in(error: BaseException, folder: Path) -> str:
    """The last line in that folder that an error came through, ``pipelines.py:12``; or empty."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [(Path(frame.filename), frame.lineno) for frame in frames]
    own = [
        f"{file.name}:{line}"
        for file, line in files
        if file.is_relative_to(folder) and "site-packages" not in file.parts
    ]
    return own[-1] if own else ""

"""Find a pipeline's code: a Python function beside the YAML, or Spark SQL over views."""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import traceback
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from tidemill.config.loader import LoadedConfig
from tidemill.config.pipeline import PipelineConfig
from tidemill.errors import ConfigError, TidemillError, nearest
from tidemill.pipeline import Pipeline, pipeline
from tidemill.runtime.code.binding import (
    Argument,
    GivenParams,
    arguments_of,
    bind,
    find_instances,
    markers_of,
)
from tidemill.runtime.code.packages import Origin, find_origin

_loaded: set[str] = set()
"""The user's own modules (not installed packages) that earlier loads have imported."""


_SESSION = ("SESSION", "SparkContext", "SparkSession", "_jvm", "get_active_spark_context")
"""Words of PySpark's errors where there is no session."""
_NO_SESSION = (
    "there is no Spark session while a module is imported: give a type as an object, "
    '@F.udf(StringType()) instead of @F.udf("string"), and use columns only inside of functions'
)


def load_pipeline(loaded: LoadedConfig, name: str, given: GivenParams | None = None) -> Pipeline:
    """The pipeline's function with its streams and parameters; starts no Spark.

    It imports the user's module. The parameters have the YAML's values where none are ``given``.
    """
    config = loaded.config.pipelines[name]
    where = f"{loaded.path} (pipelines.{name})"
    if config.sql is not None:
        found, arguments = _from_sql(loaded, config, name, where)
    else:
        found = _from_module(loaded.base, str(config.entry), where)
        arguments = arguments_of(found.function, loaded.base)
    tables = dict.fromkeys(loaded.config.tables, "table")
    known = tables | dict.fromkeys([*loaded.config.streams, *config.sources], "stream")
    paired = find_instances(arguments, known, config.instances is not None, where)
    arguments = [each for each in arguments if each.name != paired]
    read, params = bind(arguments, known, given or GivenParams(loaded, name))
    streams = tuple(each for each in read if known[each] == "stream")
    if not streams:
        raise ConfigError(
            "the code reads no stream", where=where, fix="give it an argument named as a stream"
        )
    joined = tuple(each for each in read if known[each] == "table")
    found = replace(found, streams=streams, params=params, tables=joined, instances=paired)
    unused = set(config.sources) - set(found.streams)
    if unused:
        raise ConfigError(
            f"sources: names {', '.join(sorted(unused))}, which the pipeline does not read",
            where=where,
            fix=f"it reads: {', '.join(found.streams)}",
        )
    return found


def _from_module(base: Path, entry: str, where: str) -> Pipeline:
    module_name, function_name = entry.split(":")
    module = _import(base, module_name, where)
    found = getattr(module, function_name, None)
    if found is None:
        known = [key for key, value in vars(module).items() if isinstance(value, Pipeline)]
        raise ConfigError(
            f"{module_name}.py has no {function_name!r}",
            where=where,
            fix=nearest(function_name, known),
        )
    if isinstance(found, Pipeline):
        return found
    if callable(found):
        return pipeline(found)
    raise ConfigError(f"{entry} is not a function", where=where, fix="write @pipeline above it")


def _import(base: Path, name: str, where: str) -> ModuleType:
    """Import a module of the project's folder, as its file is now.

    Modules of the user that an earlier load imported are dropped first: their files may have
    changed, and two projects in one process may use the same module names.
    """
    for earlier in _loaded:
        sys.modules.pop(earlier, None)
    _loaded.clear()
    if str(base) in sys.path:
        sys.path.remove(str(base))
    sys.path.insert(0, str(base))
    importlib.invalidate_caches()
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


def sql_text(base: Path, value: str) -> str:
    """The SQL text: from the file that the YAML names, or from the YAML itself."""
    if value.strip().endswith(".sql"):
        path = base / value.strip()
        try:
            return path.read_text("utf-8")
        except OSError as error:
            raise ConfigError(
                f"{value} cannot be read: {error.strerror}", where=str(path)
            ) from None
    return value


def _from_sql(
    loaded: LoadedConfig, config: PipelineConfig, name: str, where: str
) -> tuple[Pipeline, list[Argument]]:
    text = sql_text(loaded.base, str(config.sql)).strip().rstrip(";")
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
    streams = tuple(config.sources) or tuple(s for s in loaded.config.streams if s in words)
    if not streams:
        raise ConfigError(
            "the SQL reads no stream", where=where, fix=nearest("", loaded.config.streams)
        )

    tables = tuple(t for t in loaded.config.tables if t in words and t not in streams)

    def run(**named: Any) -> Any:
        for view in (*streams, *tables):
            named[view].createOrReplaceTempView(view)
        spark = named[streams[0]].sparkSession
        values = {key: named[key] for key in named if key not in (*streams, *tables)}
        return spark.sql(text, values or None)

    run.__name__ = name
    file = str(config.sql).strip() if str(config.sql).strip().endswith(".sql") else None
    read = [Argument(view, f"the view {view!r} of the SQL") for view in (*streams, *tables)]
    return Pipeline(run, streams), [*read, *markers_of(text, file)]


def fingerprint(loaded: LoadedConfig, name: str, facts: Iterable[str]) -> str:
    """The name of a cached analysis, from pipeline, versions, SQL and the given facts.

    Python code is not part of it: see `runtime.code.lookout` and `planning.code.behaviour`.
    """
    config = loaded.config.pipelines[name]
    digest = hashlib.sha256()
    parts = [metadata.version("tidemill"), metadata.version("pyspark"), sys.version]
    parts += [name, str(config.entry), str(loaded.base)]
    if config.sql is not None:
        parts.append(sql_text(loaded.base, config.sql))
    for part in (*parts, *facts):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:24]

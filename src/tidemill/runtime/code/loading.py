"""Find a pipeline's code: a Python function beside the YAML, or Spark SQL over views."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tidemill.config.loader import LoadedConfig
from tidemill.config.pipeline import PipelineConfig
from tidemill.errors import ConfigError, nearest
from tidemill.pipeline import Pipeline, pipeline
from tidemill.runtime.code.binding import (
    Argument,
    GivenParams,
    arguments_of,
    bind,
    find_instances,
    markers_of,
)
from tidemill.runtime.code.functions import find_callbacks, find_interceptors
from tidemill.runtime.code.importing import begin_imports, import_own


def load_pipeline(loaded: LoadedConfig, name: str, given: GivenParams | None = None) -> Pipeline:
    """The pipeline's function with its streams and parameters; starts no Spark.

    It imports the user's module. The parameters have the YAML's values where none are ``given``.
    """
    config = loaded.config.pipelines[name]
    where = f"{loaded.path} (pipelines.{name})"
    begin_imports(loaded.base)
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
    found = replace(
        found,
        streams=streams,
        params=params,
        tables=joined,
        read_from={each: config.source(each).stream or each for each in streams},
        interceptors=find_interceptors(loaded, name),
        callbacks=find_callbacks(loaded, name),
        instances=paired,
    )
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
    module = import_own(base, module_name, where)
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
    text = sql_text(loaded.base, str(config.sql)).rstrip().rstrip(";")
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
    return Pipeline(run, streams, sql=file or "sql"), [*read, *markers_of(text, file)]


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

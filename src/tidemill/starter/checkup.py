"""``tidemill doctor``: try everything that a run needs, and say how to fix what does not work."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path

import psutil

from tidemill.config.loader import LoadedConfig
from tidemill.errors import TidemillError
from tidemill.runtime.spark.session import build_session, find_java

_GIB = 1024**3
_LITTLE_DISK = 2 * _GIB
_LITTLE_MEMORY = 3 * _GIB


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def examine(config: Path, start_spark: bool) -> list[Finding]:
    """Check everything; every problem becomes a finding, and no error is raised."""
    findings = [
        _try("python", lambda: f"{sys.version.split()[0]} in {sys.prefix}"),
        _try("java", lambda: "{} (version {})".format(*find_java())),
        _try("spark", lambda: _spark(start_spark)),
        _memory(),
    ]
    if not config.exists():
        fix = "run 'tidemill init' in an empty folder, or say --config FILE"
        return [*findings, _disk(Path()), Finding("yaml", False, f"there is no {config}", fix)]
    from tidemill.config.loader import load_config

    try:
        loaded = load_config(config)
    except TidemillError as error:
        problem = Finding("yaml", False, f"{error.where}: {error.message}", error.fix)
        return [*findings, _disk(config.parent), problem]
    findings += [_disk(loaded.base), Finding("yaml", True, str(loaded.path))]
    redact = loaded.redact
    return [
        *findings,
        *(
            replace(each, found=redact(each.found), fix=redact(each.fix))
            for each in _catalog(loaded)
        ),
    ]


def _try(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except TidemillError as error:
        return Finding(name, False, error.message, error.fix)
    except Exception as error:  # a check-up reports whatever happens
        return Finding(name, False, f"{type(error).__name__}: {error}", "see the message")


def _spark(start: bool) -> str:
    version = metadata.version("pyspark")
    if not start:
        return f"pyspark {version} (not started: --quick)"
    from tidemill.config.spark import SparkConfig

    spark = build_session(SparkConfig(master="local[1]"), 1, "doctor", log=Path(os.devnull))
    try:
        if spark.range(3).count() != 3:
            raise RuntimeError("Spark cannot count to three")
    finally:
        spark.stop()
    return f"pyspark {version} starts and counts"


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    fix = "" if free > _LITTLE_MEMORY else "close other programs, or set spark: {memory: 1g}"
    return Finding("memory", not fix, f"{free / _GIB:.1f} GiB available", fix)


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder.absolute()).free
    fix = "" if free > _LITTLE_DISK else "free space, or set home: and catalog.warehouse elsewhere"
    return Finding("disk", not fix, f"{free / _GIB:.1f} GiB free", fix)


def _catalog(loaded: LoadedConfig) -> Iterator[Finding]:
    from tidemill.connectors.archives.contract import Archive
    from tidemill.iceberg.catalog import open_catalog

    opened = _try("catalog", lambda: f"{len(open_catalog(loaded).list_namespaces())} namespaces")
    yield opened
    if not opened.ok:
        return
    catalog = open_catalog(loaded)
    for name, stream in loaded.config.streams.items():
        archive = stream.archive
        if isinstance(archive, Archive):
            examine = partial(archive.examine, catalog, loaded.base, f"stream {name}")
            yield _try("stream", lambda name=name, examine=examine: f"{name}: {examine()}")  # type: ignore[misc]

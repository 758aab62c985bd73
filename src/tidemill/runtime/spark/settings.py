"""Set the Spark settings of a run in a session, and restore the old ones afterwards.

A session may have settings from ``spark-defaults.conf`` (``SPARK_CONF_DIR``), from
``PYSPARK_SUBMIT_ARGS`` or from the user's own Python. But the query must run under the settings
that our promise needs, and the code must mean what it meant when the run was planned.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemill.config.spark import SparkConfig
from tidemill.config.sparksettings import REUSE, is_meaning, meaning, promised
from tidemill.errors import RunError
from tidemill.planning.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_cores() -> int:
    """How many cores this machine has: what ``local[*]`` means."""
    return os.cpu_count() or 1


@dataclass
class _InUse:
    """A session that runs use now: how many runs, and which values it had before the first."""

    runs: int = 0
    kept: dict[str, str | None] = field(default_factory=dict)


_lock = threading.Lock()
_sessions: WeakKeyDictionary[SparkSession, _InUse] = WeakKeyDictionary()


def apply_settings(
    spark: SparkSession, pinned: Mapping[str, str], more: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """Set what our promise needs, the ``pinned`` settings of the code's meaning, and ``more``.

    A setting that changes the meaning of code and is not pinned gets Spark's own default. A query
    keeps the settings that the session had when the query was started. Returns a function that
    restores the old values; if several runs share a session, the last one restores them.
    """
    wanted: dict[str, str | None] = {
        key: None for key in spark.conf.getAll if is_meaning(key) and key not in pinned
    }
    wanted |= {**promised(), **pinned, **(more or {})}
    with _lock:
        used = _sessions.setdefault(spark, _InUse())
        used.runs += 1
        used.kept |= {key: spark.conf.get(key, None) for key in wanted if key not in used.kept}
        _apply(spark, wanted)

    def restore() -> None:
        with _lock:
            used.runs -= 1
            if used.runs == 0:
                _sessions.pop(spark, None)
                _apply(spark, used.kept)

    return restore


@contextmanager
def with_settings(spark: SparkSession, pinned: Mapping[str, str]) -> Iterator[None]:
    """Like :func:`apply_settings`, but only inside the block."""
    restore = apply_settings(spark, pinned)
    try:
        yield
    finally:
        restore()


def share_shuffles(spark: SparkSession) -> None:
    """Let Spark run equal shuffles of the run's query once; the query loses no row by it.

    Not in a session that another run uses at the moment: its query might start with it.
    """
    with _lock:
        if _sessions[spark].runs == 1:
            _apply(spark, {REUSE: "true"})


def _apply(spark: SparkSession, values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if not spark.conf.isModifiable(key):
            continue
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def require_same_meaning(manifest: Manifest, config: SparkConfig) -> None:
    """Refuse to resume a run if a Spark setting that changes the code's meaning has changed."""
    now, then = meaning(config.conf), manifest.code.settings
    if then is None:
        return
    for key in sorted({*now, *then}):
        if now.get(key) != then.get(key):
            raise RunError(
                f"{key} is {_shown(now, key)}, the run {manifest.run} began with "
                f"{_shown(then, key)}: the code would mean something else",
                where="spark.conf in the YAML",
                fix="restore it, or start a new run; old and new rows must not be mixed",
                setting=key,
            )


def _shown(values: Mapping[str, str], key: str) -> str:
    return repr(values[key]) if key in values else "Spark's default"

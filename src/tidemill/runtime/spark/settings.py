"""Give a session the settings of a run, and take them back: whatever files and variables say.

A session may be made by ``spark-defaults.conf`` (``SPARK_CONF_DIR``), ``PYSPARK_SUBMIT_ARGS`` or
the user's own Python. Its query must run under the settings that the promise rests on, and its code
must mean what it meant when the run was planned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tidemill.config.sparksettings import REUSE, is_meaning, meaning, promised
from tidemill.errors import RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.config.spark import SparkConfig
    from tidemill.planning.manifest import Manifest


@dataclass
class _Lent:
    """A session that runs use at the moment: how many, and what it had before the first."""

    runs: int = 0
    kept: dict[str, str | None] = field(default_factory=dict)


_lock = threading.Lock()
_sessions: WeakKeyDictionary[SparkSession, _Lent] = WeakKeyDictionary()


def settle(
    spark: SparkSession, pinned: Mapping[str, str], more: Mapping[str, str] | None = None
) -> Callable[[], None]:
    """Give the session the promise's settings, ``pinned`` for what code means, and ``more``.

    A setting that changes what code means and is not pinned gets Spark's own default. A query that
    is started keeps what the session had then. Returns what gives the session its values back;
    where several runs share a session, the last of them does.
    """
    wanted: dict[str, str | None] = {
        key: None for key in spark.conf.getAll if is_meaning(key) and key not in pinned
    }
    wanted |= {**promised(), **pinned, **(more or {})}
    with _lock:
        lent = _sessions.setdefault(spark, _Lent())
        lent.runs += 1
        lent.kept |= {key: spark.conf.get(key, None) for key in wanted if key not in lent.kept}
        _apply(spark, wanted)

    def give_back() -> None:
        with _lock:
            lent.runs -= 1
            if lent.runs == 0:
                _sessions.pop(spark, None)
                _apply(spark, lent.kept)

    return give_back


@contextmanager
def settled(spark: SparkSession, pinned: Mapping[str, str]) -> Iterator[None]:
    """As :func:`settle`, for a while."""
    give_back = settle(spark, pinned)
    try:
        yield
    finally:
        give_back()


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
    """A run goes on only with code that means what it meant: Spark's settings are part of it."""
    now, then = meaning(config.conf), manifest.settings
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

"""The operators as users write them: ``df.transform(sessions(key="user_id", gap="30 min"))``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.folds.operator import Fold, column_of
from tidemill.folds.sessions import bind_sessions

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import DataFrame

    Key: TypeAlias = str | Sequence[str]
    Agg: TypeAlias = Mapping[str, str | tuple[str, str]]


def sessions(
    *,
    key: Key,
    gap: object,
    max_length: object | None = None,
    agg: Agg | None = None,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """One row per session: runs of a key's events, each at most ``gap`` after the one before.

    Gives the key, ``session_start`` and ``session_end`` (first and last event), the aggregates and
    ``session_id``, which is the same in every run. Under ``max_length`` = L a run is cut at every
    multiple of L/2 since the epoch that it reaches having begun L/2 or longer before: no session
    is longer than L, and a key that never stops does not keep one open for ever.
    """
    names = [key] if isinstance(key, str) else list(key)
    return Fold(
        "sessions",
        lambda rows: bind_sessions(rows, names, gap, max_length, agg or {}),
        time,
        name,
        delay,
        lambda frame: _with_session_id(frame, names),
    )


def _with_session_id(frame: DataFrame, keys: list[str]) -> DataFrame:
    """A name for the session that follows from its key and start alone."""
    from pyspark.sql import functions as F

    start = F.unix_micros(column_of("session_start")).alias("start")
    identity = F.md5(F.to_json(F.struct(*map(column_of, keys), start)))
    return frame.withColumn("session_id", identity)

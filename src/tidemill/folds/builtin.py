"""The operators as users write them: ``df.transform(sessions(key="user_id", gap="30 min"))``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.folds.attribution import Attribution
from tidemill.folds.matching.attribute import bind_attribute
from tidemill.folds.matching.deduplicate import bind_deduplicate
from tidemill.folds.operator import Fold
from tidemill.folds.outputs import Processing
from tidemill.folds.own.custom import FoldFunction, bind_fold
from tidemill.folds.own.process import bind_process
from tidemill.folds.own.processor import Processor
from tidemill.folds.own.schemas import SchemaLike
from tidemill.folds.sessions import bind_sessions
from tidemill.folds.windowed.windows import bind_windows

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
    """One row per session: events of a key, each at most ``gap`` after the one before.

    The output has the key, ``session_start`` and ``session_end`` (first and last event), the
    aggregates, and ``session_id``, which is the same in every run. With ``max_length`` = L, an
    activity that began at *b* is cut at every multiple of L/2 since the epoch from ``b + L/2`` on.
    So no session is longer than L, and a key that never pauses does not keep one open for ever.
    """
    names = _names(key)
    return Fold(
        "sessions",
        lambda rows: bind_sessions(rows, names, gap, max_length, agg or {}),
        time,
        name,
        delay,
    )


def deduplicate(
    *,
    key: Key,
    within: object,
    keep: str = "first",
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """The rows for which no row of the same key has an event time up to ``within`` earlier.

    With ``keep="last"``: up to ``within`` later. Rows of the same time are ordered by position, if
    they have ``_meta``, else by content. The definition is local: a row makes a later row a
    duplicate even if it was itself a duplicate.
    """
    return Fold(
        "deduplicate",
        lambda rows: bind_deduplicate(rows, _names(key), within, keep),
        time,
        name,
        delay,
    )


def attribute(
    other: DataFrame,
    *,
    on: Key,
    within: object,
    direction: str = "backward",
    pick: str = "last",
    how: str = "left",
    prefix: str = "",
    time: str | None = None,
    other_time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Attribution:
    """Each row with the row(s) of ``other`` of the same key up to ``within`` before (or after) it.

    ``direction`` backward: event time in ``[t - within, t]``; forward: in ``[t, t + within]``.
    ``pick`` first, last, nearest or all of them; ``how`` left (rows without a match come out with
    nulls) or inner. The other's columns get ``prefix`` before their names.
    """
    return Attribution(
        other,
        lambda rows, others: bind_attribute(
            rows,
            others,
            _names(on),
            within,
            direction=direction,
            pick=pick,
            how=how,
            prefix=prefix,
        ),
        time,
        other_time,
        name,
        delay,
    )


def windows(
    *,
    key: Key | None,
    every: object,
    size: object | None = None,
    agg: Agg | None = None,
    empty_for: object | None = None,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """Aggregates per key and window ``[start, start + size)``; a window starts at each ``every``.

    Without ``size`` a window is ``every`` long (tumbling); longer windows overlap (sliding).
    With ``empty_for`` a key also has empty windows, for so long after its last row.
    """
    keys = None if key is None else _names(key)
    return Fold(
        "windows",
        lambda rows: bind_windows(rows, keys, every, size, agg=agg or {}, empty_for=empty_for),
        time,
        name,
        delay,
    )


def unique_counts(
    *,
    key: Key | None,
    column: str,
    every: object,
    size: object | None = None,
    method: str = "exact",
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """How many different values a column has, per key and window; nulls do not count.

    ``method="sketch"`` takes bounded memory and has a known error. It also returns the sketch,
    which can be merged with others, in the column ``sketch``.
    """
    from tidemill.folds.windowed.unique_counts import bind_unique_counts

    keys = None if key is None else _names(key)
    return Fold(
        "unique_counts",
        lambda rows: bind_unique_counts(rows, keys, column, every, size=size, method=method),
        time,
        name,
        delay,
    )


def top_n(
    n: int,
    *,
    by: str,
    every: object,
    key: Key | None = None,
    size: object | None = None,
    ascending: bool = False,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Fold:
    """The ``n`` rows with the largest ``by`` of each window and key, with their ``rank``.

    Ties are ordered by event time, then by position, if the rows have ``_meta``, else by content.
    """
    from tidemill.folds.windowed.top_n import bind_top_n

    keys = None if key is None else _names(key)
    return Fold(
        "top_n",
        lambda rows: bind_top_n(rows, n, by, keys, every, size=size, ascending=ascending),
        time,
        name,
        delay,
    )


def process(
    processor: Processor | type[Processor],
    *,
    key: Key,
    time: str | None = None,
    name: str | None = None,
    delay: object | None = None,
) -> Processing:
    """Run a class with ``on_row`` and ``on_timer`` on each key's rows, in the order of events.

    With several outputs, ``process(…).outputs(df)`` returns all by name; used as a transform it
    returns the first one.
    """
    return Processing(
        "process", lambda rows: bind_process(rows, processor, _names(key)), time, name, delay
    )


def fold(
    function: FoldFunction,
    *,
    key: Key,
    state: SchemaLike,
    output: SchemaLike,
    lookback: object | None = None,
    lookahead: object | None = None,
    delay: object | None = None,
    times: str | list[str] | None = None,
    hold: bool = True,
    time: str | None = None,
    name: str | None = None,
    input_delay: object | None = None,
) -> Fold:
    """A fold of your own on Polars frames: ``(state, rows, watermark) → (output, state)``.

    A frame holds the rows of many keys; the state must have the key's columns. With ``hold`` the
    function gets each row only when the watermark has passed it, in the order of events.
    """
    return Fold(
        "fold",
        lambda rows: bind_fold(
            rows,
            function,
            _names(key),
            state,
            output,
            lookback=lookback,
            lookahead=lookahead,
            delay=delay,
            times=times,
            hold=hold,
        ),
        time,
        name,
        input_delay,
    )


def _names(key: Key) -> list[str]:
    """The key as a list of names; the operator refuses values that are not names."""
    return list(key) if isinstance(key, list | tuple) else [key]  # type: ignore[list-item]

"""What a user's operator declares about time: how far it looks, how long it holds rows back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa

from tidemill.errors import nearest
from tidemill.folds.base import Input
from tidemill.planning.code.chains import Reach


def bind_reach(rows: Input, lookback: object, lookahead: object, delay: object) -> Reach:
    """The declared lengths; None is unbounded.

    A row that is output at most ``delay`` after its time depends on no later row, so ``delay`` is
    the default of ``lookahead``.
    """

    def length(value: object, option: str) -> timedelta | None:
        if value is None:
            return None
        return timedelta(microseconds=rows.length(value, option, zero=True))

    after = length(delay, "delay")
    ahead = length(lookahead, "lookahead")
    return Reach(length(lookback, "lookback"), after if ahead is None else ahead, after)


def pick_time(
    rows: Input, what: str, schema: pa.Schema, named: str | None, reach: Reach
) -> str | None:
    """The output's time column: the named one, or else its only one, if a bound is declared."""
    found: list[str] = [
        each.name for each in schema if pa.types.is_timestamp(each.type) and each.type.tz
    ]
    if named is not None:
        if named not in schema.names:
            fix = nearest(named, schema.names)
            raise rows.wrong(f"the {what} has no column {named!r} (time)", fix, column=named)
        if named not in found:
            raise rows.wrong(
                f"the {what} column {named!r} is the time, and a {schema.field(named).type}",
                "make it a timestamp",
                column=named,
            )
        return named
    if reach == Reach(None, None, None):
        return None
    if len(found) != 1:
        listed = f"has the times {', '.join(found)}" if found else "has no timestamp column"
        raise rows.wrong(
            f"lookback, lookahead and delay are told by a time, and the {what} {listed}",
            "say which column is the time",
        )
    return found[0]


def pick_times(
    rows: Input, outputs: Mapping[str, pa.Schema], named: object, reach: Reach
) -> dict[str, str]:
    """The time of each of several outputs; ``named`` is a column, or one per output."""
    if isinstance(named, Mapping):
        for output in named:
            if output not in outputs:
                fix = nearest(str(output), outputs)
                raise rows.wrong(f"there is no output {output!r} (time)", fix)
        wanted = {output: named.get(output) for output in outputs}
    else:
        having = [name for name, schema in outputs.items() if named in schema.names]
        wanted = dict.fromkeys(having or outputs, named)
    picked = {}
    for output, schema in outputs.items():
        if named is None or wanted.get(output) is not None:
            what = "output" if len(outputs) == 1 else f"output {output!r}"
            picked[output] = pick_time(rows, what, schema, wanted.get(output), reach)
    return {output: time for output, time in picked.items() if time is not None}

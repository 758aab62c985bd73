"""What a user's operator declares about time: how far it looks, how long it holds rows back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa

from tidemill.errors import PlanError, nearest
from tidemill.folds.base import Input
from tidemill.planning.chains import Reach


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


def is_declared(reach: Reach) -> bool:
    """Whether anything is bounded."""
    return reach != Reach(None, None, None)


def time_columns(schema: pa.Schema) -> list[str]:
    """The columns that can be a time."""
    return [field.name for field in schema if pa.types.is_timestamp(field.type) and field.type.tz]


def pick_time(
    rows: Input, what: str, schema: pa.Schema, named: str | None, reach: Reach
) -> str | None:
    """The output's time column: the named one, or else its only one, if a bound is declared."""
    found = time_columns(schema)
    if named is not None:
        if named not in schema.names:
            raise PlanError(
                f"the {what} has no column {named!r} (time)",
                where=rows.operator,
                fix=nearest(named, schema.names),
                column=named,
            )
        if named not in found:
            raise PlanError(
                f"the {what} column {named!r} is the time, and a {schema.field(named).type}",
                where=rows.operator,
                fix="make it a timestamp",
                column=named,
            )
        return named
    if not is_declared(reach):
        return None
    if len(found) != 1:
        listed = f"has the times {', '.join(found)}" if found else "has no timestamp column"
        raise PlanError(
            f"lookback, lookahead and delay are told by a time, and the {what} {listed}",
            where=rows.operator,
            fix="say which column is the time",
        )
    return found[0]


def pick_times(
    rows: Input, outputs: Mapping[str, pa.Schema], named: object, reach: Reach
) -> dict[str, str]:
    """The time of each of several outputs; ``named`` is a column, or one per output."""
    if isinstance(named, Mapping):
        for output in named:
            if output not in outputs:
                raise PlanError(
                    f"there is no output {output!r} (time)",
                    where=rows.operator,
                    fix=nearest(str(output), outputs),
                )
        wanted = {output: named.get(output) for output in outputs}
    else:
        having = [name for name, schema in outputs.items() if named in schema.names]
        wanted = {output: named if not having or output in having else None for output in outputs}
    picked = {}
    for output, schema in outputs.items():
        what = "output" if len(outputs) == 1 else f"output {output!r}"
        if named is not None and wanted[output] is None:
            continue
        time = pick_time(rows, what, schema, wanted[output], reach)
        if time is not None:
            picked[output] = time
    return picked

"""Which stretches of time a table has rows of, from its metadata."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.iceberg.data_files import time_bounds
from tidemill.planning.gaps import Unit

if TYPE_CHECKING:
    from pyiceberg.table import Table


def unit_of(table: Table, time: str) -> Unit:
    """The unit by which the table is partitioned by this column; an hour if it is not."""
    column = table.schema().find_field(time) if time in table.schema().column_names else None
    for field in table.spec().fields:
        name = str(field.transform)
        if column is not None and field.source_id == column.field_id and name in tuple(Unit):
            return Unit(name)
    return Unit.HOUR


def spans_with_files(
    table: Table, time: str, spans: Sequence[tuple[int, int]]
) -> list[bool | None]:
    """For each span (in order, apart) whether it has rows; None: only the rows can tell.

    A file tells it alone if all of its times lie in one span and no row of it was deleted.
    """
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

    found: list[bool | None] = [False for _ in spans]
    if table.metadata.current_snapshot_id is None or time not in table.schema().column_names:
        return found
    low, high = spans[0][0], spans[-1][1]
    within = And(GreaterThanOrEqual(term=time, value=low), LessThan(term=time, value=high))
    field, starts = table.schema().find_field(time), [span[0] for span in spans]
    for task in table.scan(within).plan_files():
        bounds = time_bounds(task.file, field)
        first, last = (low, high - 1) if bounds is None else bounds
        touched = range(max(0, bisect_right(starts, first) - 1), bisect_right(starts, last))
        is_sure = bounds is not None and not task.delete_files and len(touched) == 1
        for number in touched:
            start, end = spans[number]
            if is_sure and start <= first and last < end:
                found[number] = True
            elif found[number] is False and first < end and last >= start:
                found[number] = None
    return found

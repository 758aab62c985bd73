"""Unite the state of two runs of one fold that stand at one frontier and have no key in common.

Such states are parts of the state that one run over all keys would have: a fold's state is rows by
key, and what becomes of a key depends on its own rows and on the watermark alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.errors import RunError
from tidemill.folds.frames import to_polars
from tidemill.folds.rebucketing import fitted, split
from tidemill.folds.state import Label, StateFiles
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.folds.base import BoundFold
    from tidemill.runfolder.cohorts import Union


def united(
    fold: BoundFold, label: Label, state: pa.Table, union: Union, *, is_packed: bool
) -> pa.Table:
    """The state of one bucket with the rows that a child hands over to it. Executor.

    ``label`` is that of ``state``; ``is_packed``: readers pack the fold's rows. Where both runs
    have the same buckets a task reads one file of the child, else all of them.
    """
    files = StateFiles(union.state, union.child)
    is_alike = label.buckets == union.buckets and (label.operator in union.packed) == is_packed
    theirs = []
    for bucket in [label.bucket] if is_alike else range(union.buckets):
        other, rows = files.read(label.operator, union.batch, bucket)
        _require_equal(label, other, union)
        if not is_alike:
            rows = split(rows, fold.keys, label.buckets, is_packed=is_packed)[label.bucket]
        theirs.append(fitted(rows, fold.state))
    found = pa.concat_tables(theirs)
    _require_apart(fold, label, state, found, union)
    return pa.concat_tables([state, found]).combine_chunks()


def _require_equal(ours: Label, theirs: Label, union: Union) -> None:
    """Refuse state of another watermark: it would close what is open, or keep what is closed."""
    if ours.watermark == theirs.watermark:
        return
    own, other = (show_instant(from_micros(label.watermark)) for label in (ours, theirs))
    raise RunError(
        f"the state of {ours.operator} in the run {union.child} cannot be united: its watermark "
        f"after batch {union.batch} is {other}, and here it is {own}",
        fix="report it with the decisions in the run's folder; nothing was written",
    )


def _require_apart(
    fold: BoundFold, label: Label, state: pa.Table, found: pa.Table, union: Union
) -> None:
    """Refuse state with a common key: two runs have seen its rows, and none of them all."""
    if not len(state) or not len(found):
        return
    keys = list(fold.keys)
    ours, theirs = (to_polars(table.select(keys)).unique() for table in (state, found))
    common = ours.join(theirs, on=keys, how="semi", nulls_equal=True)
    if len(common):
        raise RunError(
            f"the state of {label.operator} in the run {union.child} cannot be united: both runs "
            f"have the key {common.row(0)}",
            fix="report it with the decisions in the run's folder; nothing was written",
        )

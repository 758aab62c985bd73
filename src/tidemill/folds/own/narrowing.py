"""Find the rows at which the function of a `fold` fails.

The function gets the rows of many keys at once. If it raises, it is called again for fewer of them:
for half of the keys, then for one key and half of its times, at last for one row more of one time.
Each of these calls is one that a finer slicing would make, so by the slicing law they give together
what the one call would have given. Which rows fail follows from the finest slicing, and therefore
from the rows alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tidemill.errors import RunError
from tidemill.folds.base import Frames
from tidemill.folds.failures import NOT_OF_THE_ROW, FailedRow, Failures
from tidemill.folds.frames import micros, stack
from tidemill.folds.own.held import NUMBER

if TYPE_CHECKING:
    from tidemill.folds.own.custom import BoundCustom


class Narrowing:
    """One step of a user's function, which goes on without the rows at which it fails."""

    def __init__(self, fold: BoundCustom, failures: Failures) -> None:
        self.fold, self.failures = fold, failures
        self.keys, self.time = list(fold.keys), fold.source.time

    def run(self, own: pl.DataFrame, rows: pl.DataFrame, now: int) -> Frames:
        """Output and state. Raises if the function fails without rows: no row is to blame."""
        try:
            return self.fold.call(own, rows, now)
        except RunError as error:
            if isinstance(error.__cause__, NOT_OF_THE_ROW) or not len(rows):
                raise
        keys = rows.select(self.keys).unique().sort(self.keys, nulls_last=True)
        if len(keys) > 1 or len(self._of(own, keys, "anti")):
            return self._by_keys(own, rows, now, keys)
        times = rows[self.time].unique().sort()
        if len(times) > 1:
            return self._by_times(own, rows, now, times.to_physical()[len(times) // 2])
        return self._at_one_time(own, rows, now, times.to_physical()[0])

    def _by_keys(
        self, own: pl.DataFrame, rows: pl.DataFrame, now: int, keys: pl.DataFrame
    ) -> Frames:
        """What is returned for a key depends on that key alone."""
        half = len(keys) // 2
        shares = [keys[:half], keys[half:]] if half else [keys]
        found = [
            self.run(self._of(own, share, "semi"), self._of(rows, share, "semi"), now)
            for share in shares
        ]
        silent = self._of(own, keys, "anti")
        if len(silent):
            found.append(self.run(silent, rows.clear(), now))
        return stack(output for output, _ in found), stack(kept for _, kept in found)

    def _by_times(self, own: pl.DataFrame, rows: pl.DataFrame, now: int, middle: int) -> Frames:
        """First the rows before a time, then the others."""
        is_early = micros(self.time) < middle
        output, kept = self.run(own, rows.filter(is_early), min(middle, now))
        more, kept = self.run(self.fold.sorted(kept), rows.filter(~is_early), now)
        return stack([output, more]), kept

    def _at_one_time(self, own: pl.DataFrame, rows: pl.DataFrame, now: int, at: int) -> Frames:
        """First the watermark alone, then the rows of this time one by one, then the watermark."""
        outputs = []
        if len(own):
            output, own = self.fold.call(own, rows.clear(), min(at, now))
            outputs, own = [output], self.fold.sorted(own)
        good, best = rows.clear(), None
        for row in rows.iter_slices(1):
            try:
                best = self.fold.call(own, stack([good, row]), min(at + 1, now))
                good = stack([good, row])
            except RunError as error:
                cause = error.__cause__ or error
                if isinstance(cause, NOT_OF_THE_ROW):
                    raise
                self.failures.add(row, 0, FailedRow.of(cause))
        if best is not None:
            outputs, own = [*outputs, best[0]], self.fold.sorted(best[1])
        if len(own):
            output, own = self.fold.call(own, rows.clear(), now)
            outputs.append(output)
        return stack([self.fold.no_output, *outputs]), own

    def _of(self, frame: pl.DataFrame, keys: pl.DataFrame, how: str) -> pl.DataFrame:
        """The rows of these keys (``semi``), or of all others (``anti``), in their order."""
        numbered = frame.with_row_index(NUMBER)
        found = numbered.join(keys, on=self.keys, how=how, nulls_equal=True)  # type: ignore[arg-type]
        return found.sort(NUMBER).drop(NUMBER)

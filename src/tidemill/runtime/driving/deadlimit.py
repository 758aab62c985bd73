"""Stop a run whose code fails at too many rows: it is broken, not its rows.

Which rows fail never depends on the limit or on how the input is cut; only whether the run goes on
does. It stops before the batch is committed, so that nothing without these rows is in the tables.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from tidemill.errors import RunError
from tidemill.runtime.registry import Registry

FEWEST = 1_000
"""A share of fewer rows says little: so many count as read from the beginning."""
_SHOWN = 3


@dataclass(frozen=True)
class DeadLimit:
    """``max_dead:`` as the YAML has it when the run's driver starts."""

    registry: Registry
    run: str
    most: Fraction

    def __call__(self, batch: int, read: int, failed: pa.Table) -> None:
        """Raise RunError if too many of the rows that were read so far have failed.

        A batch that runs again has passed already, and is in the totals.
        """
        newest = self.registry.newest_batch(self.run) if len(failed) else None
        if not len(failed) or (newest is not None and batch <= newest[0]):
            return
        totals = self.registry.totals(self.run)
        read, count = totals.read + read, totals.failed + len(failed)
        if count <= self.most * max(read, FEWEST):
            return
        raise RunError(
            f"the pipeline's code failed at {count:,} of {read:,} rows, and max_dead is "
            f"{float(self.most):.4g} of them: {_most_frequent(failed)}",
            where=f"run {self.run}, batch {batch}",
            fix="correct the code and start again; if the rows are to blame, raise max_dead, and "
            f"'tidemill resume {self.run}' goes on. Nothing of this batch was committed",
            failed=count,
            read=read,
        )


def _most_frequent(failed: pa.Table) -> str:
    """The reasons that are told most often, each with its place."""
    columns = (failed.column(name).to_pylist() for name in ("reason", "operator", "place"))
    found = Counter(zip(*columns, strict=True))
    shown = found.most_common(_SHOWN)
    more = f"; and {len(found) - _SHOWN} other reasons" if len(found) > _SHOWN else ""
    return "; ".join(f"{n:,} x {why} in {name}, {at}" for (why, name, at), n in shown) + more

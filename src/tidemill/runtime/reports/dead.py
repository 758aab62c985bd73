"""Read a run's dead rows from their table: why, where in the code, and which ones were retried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.sinks.contract import SinkRun
from tidemill.connectors.sinks.iceberg.table import SideTable
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import Manifest, RetriedRows
from tidemill.rows.columns import batch_of
from tidemill.rows.verdict import DEAD_SCHEMA
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import Registry, RunState
from tidemill.runtime.reports.late import find_reader
from tidemill.runtime.reports.rows import plain_rows
from tidemill.runtime.starts.naming import find_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLACE = ("operator", "reason", "place")


@dataclass(frozen=True)
class DeadReason:
    """A reason, and how many rows have it. Without an operator a reader could not use the row."""

    operator: str | None
    reason: str
    place: str | None
    rows: int

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "operator": self.operator,
            "reason": self.reason,
            "place": self.place,
            "rows": self.rows,
        }


@dataclass(frozen=True)
class DeadReport:
    """What is in a run's dead table; ``rows`` are the first ones, as plain values."""

    run: str
    pipeline: str
    table: str
    reasons: tuple[DeadReason, ...]
    rows: tuple[dict[str, Any], ...]
    retried: dict[str, int]  # rows by the run that has taken them

    @property
    def dead(self) -> int:
        """How many rows have one of the reasons."""
        return sum(each.rows for each in self.reasons)

    def to_json(self) -> dict[str, Any]:
        """One object, as ``dead show --json`` prints it."""
        return {
            "run": self.run,
            "pipeline": self.pipeline,
            "table": self.table,
            "dead": self.dead,
            "reasons": [each.to_json() for each in self.reasons],
            "rows": list(self.rows),
            "retried": self.retried,
        }


def read_dead(
    loaded: LoadedConfig, registry: Registry, name: str, reason: str | None, rows: int
) -> DeadReport:
    """The report of a run, or of a pipeline's latest run that has read rows. No Spark.

    ``reason``: only reasons that contain this text. ``rows``: at most so many are shown.
    """
    manifest = find_reader(loaded, registry, name)
    counted, shown = Counter[tuple[Any, ...]](), [DEAD_SCHEMA.empty_table()]
    for found in dead_batches(loaded, manifest):
        chosen = found
        if reason is not None:
            chosen = found.filter(pc.match_substring(found.column("reason"), reason))
        counted.update(zip(*(chosen.column(each).to_pylist() for each in _PLACE), strict=True))
        shown.append(chosen[: rows - sum(map(len, shown))])
    table = manifest.outputs.dead_table
    return DeadReport(
        run=manifest.run,
        pipeline=manifest.pipeline,
        table=table,
        reasons=tuple(
            DeadReason(operator, why, place, count)
            for (operator, why, place), count in counted.most_common()
        ),
        rows=tuple(plain_rows(pa.concat_tables(shown))),
        retried={run: each.count for run, each in retries_of(loaded, registry, table)},
    )


def dead_batches(loaded: LoadedConfig, manifest: Manifest) -> Iterator[pa.Table]:
    """The rows of a run's dead table in batches; none if there is no table yet.

    The table of an earlier Tidemill may lack columns, which are null then.
    """
    folder = RunFolder.of(loaded.home, manifest.run).path
    run = SinkRun(loaded, open_catalog(loaded), manifest, folder)
    table = SideTable(run, manifest.outputs.dead_table)
    view = table.view()
    known = [] if view is None else [n for n in DEAD_SCHEMA.names if n in view.columns.names]
    for batch in table.scan(known, None):
        columns = {name: batch.column(name).cast(DEAD_SCHEMA.field(name).type) for name in known}
        yield pa.Table.from_batches([batch_of(DEAD_SCHEMA, batch.num_rows, columns)])


def retries_of(
    loaded: LoadedConfig, registry: Registry, table: str
) -> Iterable[tuple[str, RetriedRows]]:
    """The runs that have taken rows of a dead table, and which ones.

    A run that was cancelled before it gave anything has taken none.
    """
    for record in registry.runs():
        manifest = find_manifest(loaded.home, record.run)
        taken = None if manifest is None else manifest.identity.origin.retries
        if taken is None or taken.table != table:
            continue
        if record.state is RunState.CANCELLED and not registry.totals(record.run).batches:
            continue
        yield record.run, taken

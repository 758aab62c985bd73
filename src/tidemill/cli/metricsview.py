"""What a person sees of a run's metrics: its stages, its folds, its newest batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.cli.render import console, new_table, show_bytes
from tidemill.planning.metrics.stages import folds_of, stages_of
from tidemill.types import FOREVER_MICROS, from_micros, show_instant, show_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from tidemill.planning.metrics.figures import BatchMetrics
    from tidemill.planning.metrics.hours import RunMetrics

_SHOWN = 8
_LATEST = 1_000 * 86_400_000_000
"""The infinite watermark is behind the infinite frontier by lateness and delays, µs."""
_RIGHT = ["seconds", "share", "rows", "bytes", "batch", "late", "out", "reading", "code", "folds",
          "writing", "commit", "waiting", "lag", "state rows", "state", "buckets",
          "largest bucket"]  # fmt: skip


def show_metrics(metrics: RunMetrics) -> None:
    """Stages over all batches, the state of folds, and the newest batches one by one."""
    out = console()
    if not (metrics.batches or metrics.hours):
        out.print(f"run {metrics.run} has committed no batch of which figures are kept")
        return
    count = len(metrics.batches) + sum(hour.batches for hour in metrics.hours)
    out.print(f"run {metrics.run}  {count:,} {'batch' if count == 1 else 'batches'}")
    out.print(_stages(metrics))
    folds = folds_of(metrics.batches)
    if folds:
        table = new_table("fold", "state rows", "state", "buckets", "largest bucket", right=_RIGHT)
        for fold in folds:
            times = f" ({fold.largest / fold.median:.1f} × median)" if fold.median else ""
            largest = f"{fold.bucket}: {fold.largest:,} rows{times}"
            state = show_bytes(fold.bytes)
            table.add_row(fold.name, f"{fold.rows:,}", state, str(fold.buckets), largest)
        out.print()
        out.print(table)
    out.print()
    out.print(_batches(metrics.batches[-_SHOWN:]))


def _stages(metrics: RunMetrics) -> Table:
    stages = stages_of(metrics)
    whole = sum(stage.seconds for stage in stages) or 1.0
    table = new_table("stage", "seconds", "share", "rows", "bytes", right=_RIGHT)
    for stage in stages:
        rows = "" if stage.rows is None else f"{stage.rows:,}"
        size = "" if stage.bytes is None else show_bytes(stage.bytes)
        share = f"{stage.seconds / whole:.0%}"
        table.add_row(stage.name, f"{stage.seconds:.2f}", share, rows, size)
    return table


def _batches(batches: tuple[BatchMetrics, ...]) -> Table:
    table = new_table("batch", "rows", "late", "out", "reading", "code", "folds", "writing",
                      "commit", "waiting", "lag", "watermark", right=_RIGHT)  # fmt: skip
    for batch in batches:
        spent = batch.seconds
        folds = sum(seconds for name, seconds in spent.items() if name.startswith("fold "))
        code = f"{spent['code']:.2f}" if "code" in spent else "?"
        seconds = (spent["reading"], folds, spent["writing"], batch.committing, batch.waiting)
        reading, *rest = (f"{each:.2f}" for each in seconds)
        lag = "" if batch.lag is None else show_seconds(batch.lag / 1e6)
        counts = (f"{each:,}" for each in (batch.batch, batch.rows, batch.late, batch.out))
        table.add_row(*counts, reading, code, *rest, lag, _moment(batch.watermark))
    return table


def _moment(micros: int) -> str:
    if micros >= FOREVER_MICROS - _LATEST:
        return "the end"
    return show_instant(from_micros(micros).replace(microsecond=0)) if micros > 0 else ""

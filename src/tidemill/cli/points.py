"""A run's place in its log and the size of its state, as scripts get them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.planning.carrying import StatePoint


def point_json(point: StatePoint) -> dict[str, Any]:
    """One object, as ``state --export --json`` prints it."""
    return {
        "run": point.run,
        "pipeline": point.pipeline,
        "batch": point.batch,
        "frontiers": {
            name: show_instant(from_micros(source.frontier))
            for name, source in point.sources.items()
        },
        "positions": {name: source.positions for name, source in point.sources.items()},
        "operators": {
            name: {"kind": fold.shape.kind, "key": list(fold.shape.keys), "rows": fold.rows}
            for name, fold in point.folds.items()
        },
    }

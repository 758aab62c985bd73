"""Batches with figures as a run would have them; a test changes what it is about."""

from typing import Any

from tidemill.planning.metrics.figures import BatchMetrics, Folding, Reading, Writing

SECOND = 1_000_000
AT = 1_767_225_600 * SECOND  # 2026-01-01


def folding(rows: list[int], *, state: int = 100, seconds: float = 0.1) -> Folding:
    count = len(rows)
    return Folding(
        tuple(rows),
        tuple(rows),
        (state,) * count,
        (state * 50,) * count,
        (seconds,) * count,
    )


def batch(number: int, **changes: Any) -> BatchMetrics:
    """A healthy one: a slice of ten seconds, of which it needs four."""
    at = AT + number * 10 * SECOND
    healthy: dict[str, Any] = {
        "batch": number,
        "at": at,
        "frontier": at - 2 * SECOND,
        "watermark": at - 600 * SECOND,
        "on_time": 100_000,
        "late": 10,
        "out": 5_000,
        "running": 2.0,
        "committing": 0.2,
        "waiting": 0.0,
        "tasks": 3.6,
        "reading": {"plays": Reading(4, 100_010, 8_000_000, 1.5)},
        "folds": {"sessions": folding([25_000, 26_000, 24_000, 25_000])},
        "writing": {"output": Writing(2, 2, 5_000, 400_000, 0.2)},
    }
    return BatchMetrics(**{**healthy, **changes})

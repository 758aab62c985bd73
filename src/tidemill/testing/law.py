"""The slicing law as one call: a pipeline gives the same rows however its input is cut."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import ConfigError
from tidemill.testing.logs import MemoryLog, as_log
from tidemill.testing.projects import Code, Replayed, make_project
from tidemill.testing.rows import assert_rows
from tidemill.types import show_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_CUTS = 6
_TICK = timedelta(milliseconds=1)


def assert_slicing_law(
    code: Code,
    streams: Mapping[str, Any],
    *,
    slicings: int | Sequence[Sequence[datetime]] = 3,
    seed: int = 0,
    tolerance: float | None = None,
    spark: SparkSession | None = None,
    **options: Any,
) -> Replayed:
    """Run a pipeline with several slicings; fail at the first that gives other rows.

    ``code``, ``streams`` and the options are those of :func:`make_project`. All outputs are
    compared, and the late and the dead rows. The first run has one slice, and its rows are
    returned: whether they are the right ones is for the test to say.

    ``slicings`` is the number of runs, or a list with the moments at which each further run is cut.
    With a number, up to six moments are chosen by ``seed``, the same ones each time: at the ingest
    times of rows, just after them, and between them. A run takes seconds, and each slice a part of
    a second. ``tolerance``: as in :func:`assert_rows`.
    """
    logs = {name: as_log(rows) for name, rows in streams.items()}
    cuts = draw_slicings(logs, slicings, seed) if isinstance(slicings, int) else slicings
    with tempfile.TemporaryDirectory(prefix="tidemill-") as folder:
        project = make_project(Path(folder), code, logs, **options)
        project.spark = spark
        whole = project.replay([])
        for slicing in cuts:
            cut = ", ".join(show_instant(moment) for moment in slicing)
            _compare(project.replay(slicing), whole, f"when the input is cut at {cut}", tolerance)
    return whole


def _compare(found: Replayed, whole: Replayed, what: str, tolerance: float | None) -> None:
    """All rows of a sliced run are those of the run with one slice."""
    for name, rows in whole.outputs.items():
        told = f"in the output {name!r} {what} (expected: those of one slice)"
        assert_rows(found.outputs[name], rows, told, tolerance=tolerance)
    assert_rows(found.late, whole.late, f"that are late {what}")
    assert_rows(found.dead, whole.dead, f"that are dead {what}")


def draw_slicings(logs: Mapping[str, MemoryLog], runs: int, seed: int) -> list[list[datetime]]:
    """Moments to cut at for all runs but the first, which has one slice."""
    if runs < 2:  # there is nothing to compare one run with
        raise ConfigError(
            f"slicings={runs} compares nothing", where="assert_slicing_law", fix="ask for 2 or more"
        )
    chance = random.Random(seed)
    times = sorted({moment for log in logs.values() for moment in _ingests(log)})
    places = [moment + shift for moment in times for shift in (timedelta(), _TICK)]
    places += [low + (high - low) / 2 for low, high in pairwise(times)]
    inner = sorted({place for place in places if times[0] < place <= times[-1]})
    most = min(_MOST_CUTS, len(inner))
    return [
        sorted(chance.sample(inner, chance.randint(min(1, most), most))) for _ in range(1, runs)
    ]


def _ingests(log: MemoryLog) -> list[datetime]:
    return [moment for moment in log.rows.column(log.ingest_time).to_pylist() if moment is not None]

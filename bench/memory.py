"""Peak memory of the driver over 3 and 24 hours of data: it must not grow with the range.

``python -m bench.memory ROWS HOURS`` backfills the first HOURS of a 24-hour archive in slices of
an hour and prints the peak of the Python driver, and of the JVM after a collection.
"""

import json
import os
import resource
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.data import playback_project
from tidemill.runtime.spark.session import build_session

START = datetime(2026, 3, 1, tzinfo=UTC)


def measure(rows: int, hours: int) -> dict[str, Any]:
    """One backfill in this process."""
    project = playback_project(rows, 24)
    config = project.config.spark.model_copy(update={"memory": "2g"})
    spark = build_session(config, 2, "bench", log=Path(os.devnull))
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    heap: list[int] = []

    def sample(_: object) -> None:
        spark._jvm.java.lang.System.gc()
        heap.append(runtime.totalMemory() - runtime.freeMemory())

    end = START + timedelta(hours=hours)
    result = project.backfill(
        "plays_per_show", START, end, slice="1h", spark=spark, on_progress=sample
    )
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "hours": hours,
        "rows": result.totals.read,
        "python": python,
        "heap": max(heap),
        "peak": python + max(heap),
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))

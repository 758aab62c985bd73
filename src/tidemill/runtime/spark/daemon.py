"""The parent of Spark's Python workers: imports once what every worker needs, then forks them.

Spark starts it as ``python -m tidemill.runtime.spark.daemon`` (``spark.python.daemon.module``).
Without it each worker would import Arrow, Iceberg and pandas for itself: seconds, on every core.
"""

import gc
import importlib


def warm_up() -> None:
    """Import what readers and writers use; no threads, no connections."""
    for name in (
        "pandas",
        "pyarrow.dataset",
        "pyiceberg.io.pyarrow",
        "pyspark.sql.worker.plan_data_source_read",
        "tidemill.folds.builtin",
        "tidemill.connectors.sinks.writing",
        "tidemill.connectors.archives.iceberg",
        "tidemill.reading.task",
    ):
        importlib.import_module(name)
    # A worker collects garbage after every task: not by looking at all these modules again.
    gc.freeze()


if __name__ == "__main__":
    warm_up()
    from pyspark.daemon import manager

    manager()

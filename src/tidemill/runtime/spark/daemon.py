"""The parent process of Spark's Python workers: it imports once what they need, then forks them.

Spark starts it as ``python -m tidemill.runtime.spark.daemon`` (``spark.python.daemon.module``).
Without it each worker would import Arrow, Iceberg and pandas itself, which takes seconds per core.
"""

import gc
import importlib


def warm_up() -> None:
    """Import what readers and writers use. Open no threads and no connections before the fork."""
    for name in (
        "pandas",
        "pyarrow.dataset",
        "pyiceberg.io.pyarrow",
        "pyspark.sql.worker.plan_data_source_read",
        "tidemill.folds.builtin",
        "tidemill.connectors.sinks.writing",
        "tidemill.connectors.archives.iceberg",
        "tidemill.iceberg.local_files",
        "tidemill.reading.datasource",
        "tidemill.reading.task",
    ):
        importlib.import_module(name)
    # A worker collects garbage after every task. Frozen objects of these modules are skipped then.
    gc.freeze()


if __name__ == "__main__":
    warm_up()
    from pyspark.daemon import manager

    from tidemill.runtime.spark.user_errors import tell_arguments

    tell_arguments()
    manager()

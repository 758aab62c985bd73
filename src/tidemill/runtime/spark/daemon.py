"""The parent process of Spark's Python workers: it imports once what they need, then forks them.

Spark starts it as ``python -m tidemill.runtime.spark.daemon`` (``spark.python.daemon.module``).
Without it each worker would import Arrow, Iceberg and pandas itself, which takes seconds per core.
"""

import gc
import importlib
import socket
from collections.abc import Callable


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


def without_delay(
    worker: Callable[[socket.socket, bool], int],
) -> Callable[[socket.socket, bool], int]:
    """What runs a task over its connection to the JVM, on a connection that does not wait.

    A task's rows and what follows them are separate writes. By default TCP holds the second one
    back until the first is acknowledged, and a peer that has nothing to say acknowledges after 40
    ms: 88 ms for a function, its rows and their answer.
    """

    def run(connection: socket.socket, is_known: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            quick = getattr(socket, "TCP_QUICKACK", None)  # Linux has it, and forgets it soon
            if quick is not None:
                connection.setsockopt(socket.IPPROTO_TCP, quick, 1)
        return worker(connection, is_known)

    return run


if __name__ == "__main__":
    warm_up()
    from pyspark import daemon

    from tidemill.runtime.spark.user_errors import tell_arguments

    tell_arguments()
    daemon.worker = without_delay(daemon.worker)
    daemon.manager()

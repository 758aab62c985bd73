import socket
import statistics
import subprocess
import sys
import threading
import time

from tidemill.runtime.spark.daemon import without_delay

COUNTED = """
import gc, tidemill.runtime.spark.daemon as daemon
daemon.warm_up()
print(len(gc.get_objects()), gc.get_freeze_count())
"""


def test_a_worker_does_not_look_for_garbage_in_what_its_parent_imported():
    run = [sys.executable, "-c", COUNTED]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    looked_at, frozen = map(int, told.split())
    assert frozen > 50_000 > 100 * looked_at


def test_a_worker_imports_nothing_of_ours_to_read_a_slice():
    """What the daemon has not imported, each of its workers would import for its first task."""
    code = (
        "import sys, tidemill.runtime.spark.daemon as daemon\ndaemon.warm_up()\n"
        "before = set(sys.modules)\n"
        "import tidemill.reading.datasource, tidemill.reading.task, tidemill.iceberg.local_files\n"
        "print(sorted(set(sys.modules) - before))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def pairs() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection over TCP: the JVM's and the worker's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = socket.create_connection(server.getsockname())
        worker, _ = server.accept()
    return jvm, worker


def test_what_is_written_in_pieces_is_not_held_back():
    """A function and its rows; rows and what follows them. TCP holds the second for 40 ms."""

    def work(connection: socket.socket, is_known: bool) -> int:
        assert is_known
        wait_for(b"rows", connection)
        connection.sendall(b"rows")
        connection.sendall(b"end")
        return 7

    jvm, worker = pairs()
    with jvm, worker:
        taken = []
        for _ in range(15):
            thread = threading.Thread(target=without_delay(work), args=(worker, True))
            began = time.perf_counter()
            thread.start()
            jvm.sendall(b"function")
            jvm.sendall(b"rows")
            wait_for(b"end", jvm)
            taken.append(time.perf_counter() - began)
            thread.join()
    assert statistics.median(taken) < 0.03


def wait_for(last: bytes, connection: socket.socket) -> None:
    """Read until these bytes came."""
    got = b""
    while not got.endswith(last):
        got += connection.recv(100)


def test_a_connection_that_is_no_tcp_is_left_as_it_is():
    here, there = socket.socketpair()
    with here, there:
        assert without_delay(lambda connection, is_known: 3)(here, True) == 3

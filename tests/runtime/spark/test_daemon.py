import subprocess
import sys

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

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

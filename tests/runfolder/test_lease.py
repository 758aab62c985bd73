import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest

from tidemill.errors import RunError
from tidemill.runfolder import lease
from tidemill.runfolder.lease import hold_lease, is_held, record_jvm

DRIVER = """
import subprocess, sys
from pathlib import Path
from tidemill.runfolder.lease import hold_lease
with hold_lease(Path(sys.argv[1]), "r1"):
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    sys.stdin.read()
    child.kill()
    child.wait()
"""


@contextmanager
def another_driver(folder):
    """A process that holds the lease, and a child of it that outlives a kill, like a JVM."""
    command = [sys.executable, "-c", DRIVER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    try:
        yield process, child
    finally:
        process.kill()
        process.communicate()
        if psutil.pid_exists(child):
            os.kill(child, signal.SIGKILL)


def test_one_driver_at_a_time_and_free_at_once_after_a_kill(tmp_path):
    with another_driver(tmp_path) as (driver, child):
        assert is_held(tmp_path)
        with pytest.raises(RunError) as raised, hold_lease(tmp_path, "r1"):
            pass
        assert raised.value.message == (
            f"the run r1 is driven by another process (pid {driver.pid})"
        )
        assert "tidemill pause r1" in raised.value.fix
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert psutil.pid_exists(child)
        assert not is_held(tmp_path)
        with hold_lease(tmp_path, "r1"):
            assert is_held(tmp_path)
            assert (tmp_path / "lease").read_text().split()[0] == str(os.getpid())


def test_a_driver_that_ends_lets_go(tmp_path):
    assert not is_held(tmp_path)
    with hold_lease(tmp_path, "r1"):
        assert is_held(tmp_path)
        with pytest.raises(RunError, match="driven by another process"), hold_lease(tmp_path, "r1"):
            pass
    assert not is_held(tmp_path)
    with pytest.raises(ZeroDivisionError), hold_lease(tmp_path, "r1"):
        raise ZeroDivisionError
    assert not is_held(tmp_path)


def test_a_new_driver_waits_for_the_old_jvm(tmp_path):
    with another_driver(tmp_path) as (driver, jvm):
        record_jvm(tmp_path, jvm)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        ended = []
        killer = threading.Timer(0.4, lambda: (ended.append(True), os.kill(jvm, signal.SIGKILL)))
        killer.start()
        began = time.monotonic()
        held = []
        with hold_lease(tmp_path, "r1", lambda: held.append(not ended)):
            assert ended and held == [True], "orders that come while it waits are its own"
            assert 0.3 < time.monotonic() - began < 10
        killer.join()


def test_a_jvm_that_does_not_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_PATIENCE", 0.2)
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        record_jvm(tmp_path, jvm.pid)
        with (
            pytest.raises(RunError, match=rf"\(pid {jvm.pid}\) of run r1 does not end") as raised,
            hold_lease(tmp_path, "r1"),
        ):
            pass
        assert raised.value.fix == f"kill -9 {jvm.pid}, then resume again"
        assert not is_held(tmp_path)
    finally:
        jvm.kill()
        jvm.wait()


@pytest.mark.parametrize(
    "content",
    ["{", json.dumps({"pid": os.getpid(), "started": 5.0})],
    ids=["damaged", "another process"],
)
def test_nobody_waits_for_a_stranger(tmp_path, content):
    """A damaged note, or a process that took over the old JVM's number."""
    (tmp_path / "jvm.json").write_text(content)
    with hold_lease(tmp_path, "r1"):
        assert is_held(tmp_path)


def test_looking_does_not_keep_a_driver_from_starting(tmp_path):
    """A page that shows all runs looks again and again while a run is resumed."""
    (tmp_path / "lease").touch()
    done = threading.Event()

    def look():
        while not done.wait(0.0005):
            is_held(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(500):
            with hold_lease(tmp_path, "r1"):
                pass
    finally:
        done.set()
        for looker in lookers:
            looker.join()


def test_a_lease_that_was_taken_over_is_known(tmp_path):
    """Another machine sees no lock: it makes the file anew, or writes into the same one."""
    with hold_lease(tmp_path, "r1") as lease:
        lease.require()
        kept = (tmp_path / "lease").read_text("utf-8")
        (tmp_path / "lease").write_text(f"{os.getpid()}\nof another machine\n", "utf-8")
        assert not lease.is_ours()
        (tmp_path / "lease").write_text(kept, "utf-8")
        lease.require()
        (tmp_path / "lease").unlink()
        assert not lease.is_ours()
        with hold_lease(tmp_path, "r1") as successor:
            assert successor.is_ours()
            with pytest.raises(RunError, match="no longer holds the run r1"):
                lease.require()

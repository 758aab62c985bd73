"""Printing for a reader who goes away: the command goes on, and its exit code tells the end."""

import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from tidemill.cli.outlet import LogOutlet

CODE = """
import sys
from tidemill.cli.outlet import protect_streams
protect_streams()
sys.stdin.readline()
for number in range(20_000):
    print('a line', number, flush=number == 0)
    print('another', number, file=sys.stderr)
sys.exit(7)
"""


def start(**streams: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_goes_away_changes_nothing() -> None:
    process = start(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdin and process.stdout
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.wait(30) == 7


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        process = start(stdout=full, stderr=subprocess.PIPE)
        err = process.communicate(b"go\n", timeout=30)[1]
    assert process.returncode != 7
    assert b"No space left" in err


def test_closed_streams_do_not_become_files() -> None:
    """Else the first file that is opened is standard output, and what is printed goes into it."""
    code = (
        "from tidemill.cli.outlet import protect_streams; protect_streams();"
        "import os, sys; f = open(sys.argv[1], 'w'); print('lost'); print('lost', file=sys.stderr);"
        "sys.exit(f.fileno())"
    )
    command = f'exec "{sys.executable}" -c "{code}" /dev/null <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command], check=False).returncode >= 3


def test_a_log_record_waits_for_no_reader() -> None:
    outlet, written, gate = LogOutlet(), list[str](), threading.Event()

    class Slow:
        def write(self, text: str) -> None:
            gate.wait()
            written.append(text)

        def flush(self) -> None:
            pass

    outlet.stream = Slow()  # type: ignore[assignment]
    logger = logging.Logger("test", logging.INFO)
    logger.addHandler(outlet)
    began = time.monotonic()
    for number in range(20_000):
        logger.info("record %d", number)
    assert time.monotonic() - began < 10
    assert written == []
    gate.set()
    outlet.close()
    assert written[:2] == ["record 0\n", "record 1\n"]
    assert 9_000 < len(written) <= 10_001

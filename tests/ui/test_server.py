"""Where the server listens, and the link that it prints. The command itself, as a process."""

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import pytest

from tests.cli.stage import Stage
from tidemill.errors import ConfigError, RequestError
from tidemill.ui.access import Sessions, Token
from tidemill.ui.address import Address
from tidemill.ui.server import Serving, choose_token

LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})")


@pytest.fixture
def folder(tmp_path):
    Stage.make(tmp_path)
    return tmp_path


def token_file(folder, text="x" * 32, mode=0o600):
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_first_line_is_the_link_and_the_token_is_printed_nowhere_else(folder):
    command = [sys.executable, "-m", "tidemill.cli", "ui", "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = LINK.fullmatch(process.stdout.readline().strip())
        assert found is not None
        port, token = int(found[1]), found[2]
        for path in (f"/?token={token}", "/?token=wrong", "/nothing"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", path)
            assert connection.getresponse().status in (303, 401)
            connection.close()
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode in (0, 130)
    assert token not in out + err and "Traceback" not in err


def test_elsewhere_a_token_file_is_needed(folder):
    config = folder / "tidemill.yaml"
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(RequestError, match="--token-file"):
            choose_token(Serving(config, host))
        assert not choose_token(Serving(config, host, token_file=token_file(folder))).is_made
    assert choose_token(Serving(config)).is_made
    assert choose_token(Serving(config, "localhost")).is_made
    assert choose_token(Serving(config, "::1")).is_made


def test_the_command_refuses_before_it_listens(folder):
    command = [sys.executable, "-m", "tidemill.cli", "ui", "--no-open", "--host", "0.0.0.0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "can be reached from other machines" in done.stderr and "--token-file" in done.stderr


@pytest.mark.parametrize("text", ["", "short", "x" * 19, "tw o\nlines" * 4, "\x00" * 40, "ü" * 40])
def test_a_token_that_protects_nothing_is_refused(tmp_path, text):
    with pytest.raises(RequestError, match="a token has at least 20"):
        Token.read(token_file(tmp_path, text))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_token_that_others_can_read_is_refused(tmp_path, mode):
    with pytest.raises(RequestError, match="other users may read"):
        Token.read(token_file(tmp_path, mode=mode))
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == mode


def test_a_token_file_that_is_not_there(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        Token.read(tmp_path / "nothing")


def test_a_token_from_a_file_is_not_printed(tmp_path):
    token = Token.read(token_file(tmp_path, "s" * 30))
    assert token.fits("s" * 30) and not token.fits("s" * 31)
    assert token.link("http://here:1") == "http://here:1/"
    assert "s" * 30 not in repr(token)


def test_the_browsers_link_works_once():
    """It is an argument of a process, which every user of the machine sees."""
    token = Token.make()
    once = token.link_once("http://here:1").partition("token=")[2]
    assert once not in token.link("http://here:1")
    assert token.fits(once) and not token.fits(once)
    assert token.fits(token.link("").partition("token=")[2])


def test_sessions_end_and_make_room(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tidemill.ui.access.time.monotonic", lambda: now[0])
    sessions = Sessions()
    first = sessions.begin()
    assert sessions.find(first) is not None and sessions.find(None) is None
    now[0] = 13 * 3_600
    assert sessions.find(first) is None
    first = sessions.begin()
    for _ in range(64):
        sessions.begin()
    assert sessions.find(first) is None


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RequestError, match="cannot listen") as found:
            Address("127.0.0.1", other.getsockname()[1]).listen()
    assert "--port 0" in found.value.fix


def test_it_listens_on_loopback_alone():
    listening, address = Address("127.0.0.1", 0).listen()
    with listening:
        assert listening.getsockname() == ("127.0.0.1", address.port)
    assert Serving(None).host == "127.0.0.1"  # type: ignore[arg-type]


def test_names_elsewhere():
    address = Address("0.0.0.0", 80)
    assert address.knows("192.0.2.7:80") and address.knows(f"{socket.gethostname()}:80")
    assert not address.knows("evil.example:80") and not address.knows("localhost.evil:80")
    home = Address("127.0.0.1", 80)
    assert not home.knows("192.0.2.7:80") and not home.knows(f"{socket.gethostname()}:80")
    assert Address("::1", 80).knows("[::1]:80") and Address("::1", 80).url == "http://[::1]:80"


def test_a_missing_extra_names_its_install_command(folder):
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from pathlib import Path\n"
        "from tidemill.ui.server import Serving, serve\n"
        "serve(Serving(Path('tidemill.yaml')), print)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ},
    )  # fmt: skip
    assert ConfigError.__name__ in done.stderr and "pip install 'tidemill[ui]'" in done.stderr

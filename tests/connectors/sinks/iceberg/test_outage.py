"""A catalog that does not answer while a batch is committed: waited for, told, and left in time."""

import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import requests
from requests.exceptions import ConnectionError as Unreachable
from requests.exceptions import Timeout
from sqlalchemy.exc import OperationalError

from tests.connectors.archives.archives import open_local
from tidemill.connectors.sinks.iceberg import commit
from tidemill.connectors.sinks.iceberg.commit import BatchStamp, Known, commit_files
from tidemill.connectors.sinks.iceberg.tables import ensure_table
from tidemill.connectors.sinks.writing import write_files
from tidemill.errors import SinkError
from tidemill.iceberg import outage
from tidemill.iceberg.outage import is_outage, one_line, with_patience
from tidemill.runfolder.control import update_control
from tidemill.runfolder.retrying import BrokenOffError, read_retry
from tidemill.runtime.driving.beside import Beside, Breaker

NAME = "marts.shows"
SCHEMA = pa.schema([("id", pa.int64())])


class Away:
    """A real catalog that does not answer the first times it is asked for a table."""

    def __init__(self, folder: Path, times: int, error: Exception) -> None:
        self.real, self.error = open_local(folder), error
        ensure_table(self.real, NAME, SCHEMA, None, "none")
        self.left, self.seen = times, []

    def load_table(self, name: str) -> Any:
        self.seen.append(self.left)
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return self.real.load_table(name)

    def files(self) -> Any:
        table = self.real.load_table(NAME)
        return write_files(table.metadata, table.io, pa.table({"id": [1]}, SCHEMA))


def refused() -> Exception:
    """What the operating system says of a server that is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    try:
        requests.get(f"http://127.0.0.1:{port}", timeout=5)
    except Unreachable as error:
        return error
    raise AssertionError


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_a_commit_waits_for_a_catalog_that_is_away(tmp_path, run, monkeypatch):
    away = Away(tmp_path, 3, refused())
    notes = []
    monkeypatch.setattr(
        "tidemill.iceberg.transaction.time",
        SimpleNamespace(sleep=lambda _: notes.append(read_retry(run))),
    )
    known = Known(run=run)
    assert commit_files(away, NAME, BatchStamp("r", 0, {}, 0), away.files(), known=known)
    assert len(away.seen) == 4 and len(notes) == 3
    assert {note.place for note in notes} == {f"table {NAME}"}
    assert {note.why for note in notes} == {"the catalog does not answer: connection refused"}
    assert len({note.since for note in notes}) == 1
    assert read_retry(run) is None
    assert away.real.load_table(NAME).scan().to_arrow().num_rows == 1


def test_it_gives_up_with_the_reason(tmp_path, run, monkeypatch):
    monkeypatch.setattr(commit, "_TRIES", 3)
    away = Away(tmp_path, 99, refused())
    with pytest.raises(SinkError, match="in 3 tries: the catalog does not answer: connection ref"):
        commit_files(away, NAME, BatchStamp("r", 0, {}, 0), away.files(), known=Known(run=run))


@pytest.mark.parametrize("order", ["stopping", "cancelled"])
def test_a_run_that_is_told_to_end_leaves_it(tmp_path, run, order):
    update_control(run, **{order: True})
    away = Away(tmp_path, 99, refused())
    files = away.files()
    with pytest.raises(BrokenOffError, match=f"told to end while table {NAME} did not answer"):
        commit_files(away, NAME, BatchStamp("r", 0, {}, 0), files, known=Known(run=run))
    assert len(away.seen) == 1
    away.left = 0  # it is back, and the run goes on
    update_control(run, **{order: False})
    assert commit_files(away, NAME, BatchStamp("r", 0, {}, 0), files, known=Known(run=run))
    assert read_retry(run) is None


def test_what_waiting_does_not_mend_is_no_outage(tmp_path):
    def sql(text: str) -> OperationalError:
        return OperationalError("select 1", {}, Exception(text))

    for error in (refused(), Timeout("read timed out"), sql("server closed the connection")):
        assert is_outage(error)
    permanent = (sql("no such table: iceberg_tables"), sql("password authentication failed"))
    for error in (*permanent, FileNotFoundError(2, "gone"), PermissionError(13, "no"), KeyError()):
        assert not is_outage(error)
    away = Away(tmp_path, 1, permanent[0])
    with pytest.raises(OperationalError):
        commit_files(away, NAME, BatchStamp("r", 0, {}, 0), away.files())
    assert one_line(KeyError()) == "KeyError"


def test_a_rest_catalog_that_hangs_has_an_end(monkeypatch):
    """A real server that takes the connection and says nothing."""
    monkeypatch.setattr(outage, "_SECONDS", (0.5, 0.5))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        catalog = SimpleNamespace(_session=requests.Session())
        with_patience(catalog)
        began = time.monotonic()
        with pytest.raises(Timeout) as raised:
            catalog._session.get(f"http://127.0.0.1:{server.getsockname()[1]}/v1/config")
        assert time.monotonic() - began < 10
        assert is_outage(raised.value)
    with_patience(SimpleNamespace())  # no session: nothing to do


def test_a_commit_that_hangs_can_be_left():
    breaker, hold = Breaker(), threading.Event()
    done = []
    breaker.run(lambda: done.append(1), KeyError)
    assert done == [1] and not breaker.is_inside
    with pytest.raises(ValueError, match="its own"):
        breaker.run(lambda: int("its own"), KeyError)
    threading.Timer(0.2, breaker.break_off).start()
    began = time.monotonic()
    with pytest.raises(KeyError):
        breaker.run(hold.wait, KeyError)
    assert time.monotonic() - began < 10 and not breaker.is_inside
    hold.set()


def test_work_beside_the_driver_is_never_waited_for():
    beside, hold, calls = Beside("test"), threading.Event(), []
    beside.begin(hold.wait)
    beside.begin(lambda: calls.append("not while another goes on"))
    assert beside.is_busy and not calls
    hold.set()
    while beside.is_busy:
        time.sleep(0.01)
    beside.begin(lambda: int("no number"))
    while beside.is_busy:
        time.sleep(0.01)
    with pytest.raises(ValueError, match="no number"):
        beside.begin(lambda: calls.append("the error comes first"))
    beside.begin(lambda: calls.append("then it goes on"))
    while beside.is_busy:
        time.sleep(0.01)
    assert calls == ["then it goes on"]

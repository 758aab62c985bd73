"""What pages show of rows, errors and logs that hold scripts and secrets."""

import logging
from html import escape
from json import dumps
from urllib.parse import quote

import markupsafe
import pytest

from tests.ui.conftest import CANARY, FAILED, PAGES, RUN, SCRIPT
from tests.ui.site import served
from tidemill.ui import shown
from tidemill.ui.charts import Column, columns
from tidemill.ui.views import Views

ABOUT = {"read_only": False, "version": "1", "project_name": "p", "FORM_TOKEN": "t"}
FORMS = ("/", f"/runs/{FAILED}", f"/runs/{RUN}/rows", f"/runs/{RUN}/late", "/pipelines/pipeline")


def traces(secret):
    """The secret, and what escaping makes of it."""
    quoted = escape(secret, quote=False)
    return {secret, escape(secret), str(markupsafe.escape(secret)), quoted, dumps(secret)[1:-1]}


@pytest.mark.parametrize("path", PAGES)
def test_whatever_is_shown_is_text(visitor, path):
    text = visitor.ask(path).text
    assert "<script>alert" not in text and "<img src=x" not in text


def test_hostile_rows_are_there_as_text(visitor):
    text = visitor.ask(f"/runs/{RUN}/rows").text
    assert "&lt;script&gt;alert(" in text
    assert f"({len('long ' * 500):,} letters)" in text and "long " * 100 not in text
    assert "&lt;script&gt;" in visitor.ask(f"/runs/{RUN}/late").text
    assert "&lt;script&gt;" in visitor.ask(f"/runs/{FAILED}").text


@pytest.mark.parametrize("path", ["/", f"/runs/{FAILED}"])
def test_events_are_escaped_too(visitor, path):
    (parts,) = visitor.events(path)
    told = "".join(parts.values())
    assert parts["live_error"] == "" and len(parts) > 1
    assert "<script>" not in told and "&lt;script&gt;" in told


def test_a_secret_is_shown_nowhere(site, visitor, caplog, capfd):
    """In pages, parts of them, errors, refusals and logs; also where it was escaped or cut."""
    caplog.set_level(logging.DEBUG)
    seen = [visitor.ask(path).text for path in PAGES]
    seen += [
        part for path in FORMS[:2] for event in visitor.events(path) for part in event.values()
    ]
    for path in (f"/runs/{quote(CANARY)}", f"/pipelines/{quote(CANARY)}", f"/{quote(CANARY)}"):
        seen.append(visitor.ask(path).text)
    where = quote(f"word = '{CANARY}")
    seen.append(visitor.ask(f"/runs/{RUN}/rows?where={where}").text)
    plan = f"/pipelines/pipeline/plan?from={quote(CANARY)}&to=x"
    seen.append(visitor.ask(plan).text)
    order = {"order": CANARY}
    seen.append(visitor.send(f"/runs/{RUN}/order", order, f"/runs/{RUN}/review").text)
    seen += [*capfd.readouterr(), caplog.text]
    for text in seen:
        for trace in traces(CANARY):
            assert trace not in text, text[max(0, text.index(trace) - 200) :][:400]
    assert sum("***" in text for text in seen) > 5, "it was there, and is hidden"


def test_a_value_is_redacted_before_it_is_cut():
    views = Views(lambda text: text.replace("x" * 40, "***"), **ABOUT)
    found = views._cell("y" * (shown.LONGEST - 20) + "x" * 40 + "z" * 99)
    assert "xx" not in found and "***" in found


def test_titles_of_charts_are_escaped():
    found = str(columns([Column(SCRIPT, (("one", 1),))], SCRIPT))
    assert "<script>" not in found and found.count("&lt;script&gt;") == 2


def test_errors_have_the_words_of_the_command_line(visitor, hostile):
    text = visitor.ask("/runs/20260101_000000_aaab").text
    told = hostile.cli("status", "20260101_000000_aaab").err
    for line in told.removeprefix("error: ").strip().splitlines():
        assert str(markupsafe.escape(line.strip())) in text
    where = hostile.cli("show", RUN, "--where", "nope = 1").err
    assert "nope" in where
    text = visitor.ask(f"/runs/{RUN}/rows?where=nope+%3D+1").text
    assert str(markupsafe.escape(where.splitlines()[0].removeprefix("error: "))) in text


def test_an_error_that_nobody_expected_is_told_without_a_trace(hostile, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError(f"in {CANARY}")

    monkeypatch.setattr("tidemill.project.Project.log_tail", fail)
    with served(hostile.project) as broken:
        visitor = broken.visitor().enter()
        found = visitor.ask(f"/runs/{RUN}")
        assert found.status == 500 and "ZeroDivisionError: in ***" in found.text
        assert "Traceback" not in found.text
        (parts,) = visitor.events(f"/runs/{RUN}")
        assert list(parts) == ["live_error"] and "ZeroDivisionError" in parts["live_error"]


def test_a_mistake_in_the_yaml_is_told_on_every_page(tmp_path):
    from tests.cli.stage import Stage

    stage = Stage.make(tmp_path)
    with served(stage.project) as made:
        visitor = made.visitor().enter()
        path = stage.project.loaded.path
        good = path.read_text()
        path.write_text(good + "\nstraems: {}\n")
        found = visitor.ask("/")
        assert found.status == 400 and "straems" in found.text and "streams" in found.text
        path.write_text(good)
        assert visitor.ask("/").status == 200


@pytest.mark.parametrize(
    "line", ["password: hunter2", "  s3.secret-access-key: hunter2", "'sasl.jaas.config': hunter2"]
)
def test_a_password_that_stands_in_the_yaml_is_not_shown(line):
    from tidemill.ui.pages.switch import _PASSWORD

    assert "hunter2" not in _PASSWORD.sub(r"\1***", f"a: 1\n{line}\nb: 2\n")
    assert "${HERE}" in _PASSWORD.sub(r"\1***", "password: ${HERE}")

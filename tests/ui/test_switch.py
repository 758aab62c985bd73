"""The switch: what is chosen becomes one command, and no more of a request becomes any."""

import shlex
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ui.conftest import FAILED, RUN
from tidemill.cli.main import cli
from tidemill.errors import ConfigError, PlanError, RunError
from tidemill.runfolder.folder import COMMAND_LOG
from tidemill.ui.asking import Answers, ask
from tidemill.ui.commands import Choice, Command
from tidemill.ui.launching import Launches
from tidemill.ui.looks import Looks

TIMES = {"from": "2026-01-01T00:00Z", "to": "2026-01-02 01:00+01:00"}


def choice(how="backfill", regions=(), params=None, **fields):
    return Choice("pipeline", how, {**TIMES, **fields}, regions, params or {})


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (choice(), "backfill pipeline --from=2026-01-01T00:00Z --to=2026-01-02T00:00Z"),
        (choice("hybrid", rate="500"), "run pipeline --from=2026-01-01T00:00Z --rate=500"),
        (choice("live", name="plays"), "run pipeline --name=plays"),
        (
            choice(regions=("US", "--yes"), where="a = 1\n\n b = 'x y'", slice="1 h"),
            "backfill pipeline --from=2026-01-01T00:00Z --to=2026-01-02T00:00Z --region=US "
            "--region=--yes '--where=a = 1' \"--where=b = 'x y'\" '--slice=1 h'",
        ),
        (choice("live", params={"a": "--append"}), "run pipeline --param=a=--append"),
    ],
)
def test_a_choice_is_one_command(hostile, chosen, words):
    found = chosen.start(hostile.project.loaded)
    assert list(found.words) == shlex.split(words)
    argv = found.argv()
    assert argv[:3] == [sys.executable, "-m", "tidemill.cli"]
    assert argv[-2:] == ["--config", str(hostile.project.loaded.path)]
    command = cli.commands[found.words[0]]
    read = command.make_context(found.words[0], list(argv[4:]), resilient_parsing=False)
    assert read.params["pipeline"] == "pipeline"
    assert not read.params.get("append") and not read.params.get("yes")


@pytest.mark.parametrize(
    ("chosen", "error", "text"),
    [
        (choice("publish"), PlanError, "is not a way to run"),
        (choice(**{"from": ""}), PlanError, "--from TIME is missing"),
        (choice(**{"from": "yesterday"}), ConfigError, "is not a time"),
        (choice(**{"from": "2026-01-01T00:00"}), ConfigError, "has no zone"),
        (choice(**{"to": "2025-01-01T00:00Z"}), ConfigError, "2025-01-01"),
        (choice(rate="fast"), PlanError, "not a number of rows"),
        (choice(rate="0"), PlanError, "not a positive number"),
        (choice(slice="soon"), ConfigError, "soon"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(hostile, chosen, error, text):
    with pytest.raises(error, match=text):
        chosen.check()
        chosen.start(hostile.project.loaded)


@pytest.mark.parametrize(
    "path", ["/pipelines/..%2F..%2Fetc", "/pipelines/os:system", "/runs/..%2F..", "/pipelines/nope"]
)
def test_only_names_of_the_project_are_taken(visitor, path):
    found = visitor.ask(path)
    assert found.status in (400, 404) and "Traceback" not in found.text
    assert visitor.ask(f"{path}/plan?from=2026-01-01T00:00Z").status in (400, 404)
    form = {"how": "live", "once": "a" * 16}
    assert visitor.send(f"{path}/start", form, f"/runs/{RUN}/review").status in (400, 404, 409)


def test_fields_that_the_switch_does_not_have_are_not_taken(site, visitor, monkeypatch):
    """Neither a place to write to, nor a file of state, nor a consent."""
    started = []

    def start(self, command, home, run=None, key=None):
        started.append(command.words)
        raise RunError("not here")

    monkeypatch.setattr(Launches, "start", start)
    form = {
        **TIMES, "how": "backfill", "into": "marts.other", "state": "/etc/passwd", "append": "1",
        "config": "/tmp/x.yaml", "param_nothing": "1", "once": "a" * 16,
    }  # fmt: skip
    found = visitor.send("/pipelines/pipeline/start", form, f"/runs/{RUN}/review")
    assert found.status == 409
    assert started == [
        ("backfill", "pipeline", "--from=2026-01-01T00:00Z", "--to=2026-01-02T00:00Z")
    ]


@pytest.mark.parametrize("once", ["", "short", "../../../../x.log" * 2, "a" * 65])
def test_a_form_has_its_own_key(visitor, once):
    form = {**TIMES, "how": "live", "once": once}
    found = visitor.send("/pipelines/pipeline/start", form, f"/runs/{RUN}/review")
    assert found.status == 400 and "the form is not whole" in found.text


def test_an_unknown_order_and_an_unknown_action(visitor):
    page = f"/runs/{RUN}/review"
    for order in ("forget", "rewind", "__class__", ""):
        found = visitor.send(f"/runs/{RUN}/order", {"order": order}, page)
        assert found.status == 400 and "there is no order" in found.text
    typed = {"typed": RUN, "look": "x"}
    found = visitor.send(f"/runs/{RUN}/decide", {**typed, "action": "drop"}, page)
    assert found.status == 400 and "there is no action" in found.text
    found = visitor.send(f"/runs/{RUN}/decide", {**typed, "action": "publish"}, page)
    assert found.status == 400 and "look again" in found.text


@pytest.mark.parametrize("typed", ["", "yes", RUN[:-1], RUN.upper()])
def test_a_publish_wants_the_id_typed(visitor, typed):
    form = {"typed": typed, "look": "x", "action": "publish"}
    found = visitor.send(f"/runs/{RUN}/decide", form, f"/runs/{RUN}/review")
    assert found.status == 409 and "nothing was changed" in found.text


def test_a_look_is_used_once_and_for_its_own_run():
    class Desk:
        def __init__(self):
            self.done = []

        def publish(self, run, dry_run=False, looked=None):
            self.done += [] if dry_run else [(run, looked)]
            return []

    class Project:
        review = Desk()

    looks, project = Looks(), Project()
    key = looks.look(project, RUN, "publish").key
    for run, action in ((FAILED, "publish"), (RUN, "revert")):
        with pytest.raises(RunError, match="shown too long ago"):
            looks.carry_out(project, key, run, action)
        key = looks.look(project, RUN, "publish").key
    looks.carry_out(project, key, RUN, "publish")
    assert project.review.done == [(RUN, {})]
    with pytest.raises(RunError):
        looks.carry_out(project, key, RUN, "publish")


def test_a_rate_and_a_refused_order(visitor, hostile):
    page = f"/runs/{FAILED}"
    found = visitor.send(f"/runs/{FAILED}/order", {"order": "rate", "rows": "5_000"}, page)
    assert (found.status, found.headers["location"]) == (303, page)
    found = visitor.send(f"/runs/{FAILED}/order", {"order": "rate", "rows": "quick"}, page)
    assert found.status == 400 and "is not a number of rows per second" in found.text
    found = visitor.send(f"/runs/{FAILED}/order", {"order": "pause"}, page)
    assert found.status == 409 and "is not running, it is failed" in found.text


@dataclass(frozen=True)
class Script(Command):
    """A process that prints what a command prints."""

    code: str = ""

    def argv(self, *more: str) -> list[str]:
        return [sys.executable, "-c", self.code]


def script(code):
    return Script(("x",), Path("tidemill.yaml"), code)


def test_a_started_command_keeps_its_log_in_the_runs_folder_and_starts_once(tmp_path):
    run = "20260101_000000_dddd"
    mark = tmp_path / "starts"
    folder = tmp_path / "runs" / run
    code = (
        f"import os, time\nopen({str(mark)!r}, 'a').write('x')\nos.makedirs({str(folder)!r})\n"
        f"print('risk: none', flush=True)\nprint('run {run}', flush=True)\ntime.sleep(0.5)\n"
        "print('later')"
    )
    launches = Launches()
    launch = launches.start(script(code), tmp_path, key="k" * 16)
    assert launches.start(script(code), tmp_path, key="k" * 16) is launch
    launch.wait(10)
    assert launch.run == run and launches.of_run(run) is launch
    launch.wait_for_end(10)
    assert (folder / COMMAND_LOG).read_text() == f"risk: none\nrun {run}\nlater\n"
    assert not list((tmp_path / "starting").iterdir()) and mark.read_text() == "x"
    assert launch.exit_code == 0 and launch.text.endswith("later\n")


def test_a_command_that_is_refused_says_why(tmp_path):
    code = (
        "import sys; print('error: no such thing\\n  fix: another', file=sys.stderr); sys.exit(2)"
    )
    launch = Launches().start(script(code), tmp_path)
    launch.wait(10)
    assert launch.run is None and launch.is_over and launch.is_refused
    assert launch.text == "error: no such thing\n  fix: another\n"


def test_a_started_command_outlives_the_server(tmp_path):
    """It is in a session of its own: what ends the server's terminal does not reach it."""
    launch = Launches().start(script("import os; print(os.getsid(0) == os.getpid())"), tmp_path)
    launch.wait_for_end(10)
    assert launch.text == "True\n"


def test_a_question_is_answered_or_refused_in_the_commands_words(hostile):
    config = hostile.project.loaded.path
    assert ask(Command(("runs",), config), 60)
    with pytest.raises(RunError, match="no answer within"):
        ask(script("import time; time.sleep(9)"), 0.3)
    with pytest.raises(RunError, match="gave no answer: boom"):
        ask(script("import sys; sys.exit('boom')"), 20)
    with pytest.raises(Exception, match="there is no run 'nope'") as found:
        ask(Command(("status", "nope"), config), 60)
    assert "allowed" in found.value.fix or "did you mean" in found.value.fix


def test_a_question_is_asked_once_at_a_time(tmp_path):
    mark = tmp_path / "asked"
    code = f"import time\nopen({str(mark)!r}, 'a').write('x')\ntime.sleep(0.4)\nprint('{{}}')"
    answers = Answers()
    assert answers.get("a") is None
    for _ in range(3):
        answers.ask("a", script(code))
    answer = answers.get("a")
    until = time.monotonic() + 20
    while not answer.is_there and time.monotonic() < until:
        time.sleep(0.05)
    assert (answer.value, answer.error, mark.read_text()) == ({}, None, "x")


def test_few_wait_and_what_nobody_wants_any_more_is_not_asked(tmp_path):
    mark = tmp_path / "asked"
    code = f"import time\nopen({str(mark)!r}, 'a').write('x')\ntime.sleep(1.5)\nprint('{{}}')"
    wanted, failed = [True] * 10, []

    def one(number):
        try:
            ask(script(code), 30, lambda: wanted[number])
        except RunError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(10)]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(0.02)
        wanted[number] = number < 3
    for thread in threads:
        thread.join(30)
    assert sorted(text.splitlines()[0] for text in failed) == [
        *["something else was chosen since"] * 5,
        *["too much is being asked already"] * 2,
    ]
    assert mark.read_text() == "xxx"


def test_an_order_that_the_command_refuses_is_told_on_the_runs_page(visitor, hostile):
    """At once, or a moment later where the command takes its time to say so."""
    page = f"/runs/{RUN}"
    found = visitor.send(f"{page}/order", {"order": "resume"}, f"{page}/review")
    assert found.status in (303, 409)
    text = told(visitor, page, f"the run {RUN} is finished")
    assert "start a new one" in text
    (hostile.project._folder(RUN).path / COMMAND_LOG).unlink()


def test_a_start_that_fails_says_so_where_it_was_started(visitor, hostile):
    """The code of this project is in no file, so the command cannot plan."""
    form = {**TIMES, "how": "backfill", "once": "b" * 32}
    found = visitor.send("/pipelines/pipeline/start", form, f"/runs/{RUN}/review")
    assert found.status == 303 and found.headers["location"] == f"/starts/{'b' * 32}"
    text = told(visitor, found.headers["location"], "Nothing was started")
    assert "error: " in text and "tidemill backfill pipeline --from=2026" in text
    again = visitor.send("/pipelines/pipeline/start", form, f"/runs/{RUN}/review")
    assert again.headers["location"] == found.headers["location"]
    assert visitor.ask("/starts/nothing").status == 400


def told(visitor, page, words):
    until = time.monotonic() + 60
    while words not in (text := visitor.ask(page).text) and time.monotonic() < until:
        time.sleep(0.3)
    assert words in text
    return text

"""The mistakes of the table `mistakes.yaml`: how each command ends, word for word."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bad_input.shop import RANGE, Shop, untouched
from tests.bad_input.terminal import Outcome
from tests.bad_input.workshop import Workshop, with_modules

MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))
BY_CODE = [each for each in MISTAKES if "makes" in each]
OTHERS = [each for each in MISTAKES if "makes" not in each]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return with_modules(tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    pieces = (each["makes"] for each in BY_CODE)
    return Workshop(tmp_path_factory.mktemp("workshop"), pieces)


def judge(outcome: Outcome, mistake: dict[str, Any], **names: object) -> None:
    """The command ended as the table says. That it printed no trace is seen to by `run_cli`."""
    says = re.sub("^YAML", str(names.pop("YAML", "")), mistake["says"])
    text = says + (f"\n  fix: {mistake['fix']}" if "fix" in mistake else "")
    for name, value in names.items():
        text = text.replace(name, str(value))
    if mistake.get("usage"):
        outcome.misused(text)
    else:
        outcome.refuses(text, mistake.get("exit", 2))


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("mistake", OTHERS, ids=lambda each: each["mistake"])
def test_a_mistake(shop: Shop, modules: Shop, mistake: dict[str, Any]):
    """Without Java: all of this is said before Spark starts."""
    project = modules if mistake.get("modules") else shop
    given = mistake.get("command", ["plan", "sums", "RANGE"])
    command = [part for each in given for part in (RANGE if each == "RANGE" else [each])]
    with untouched(project):
        tried = project.variant((mistake["change"], mistake["to"])) if "to" in mistake else project
        outcome = tried.cli(*command, *mistake.get("options", []))
    judge(outcome, mistake, YAML=tried.path, FOLDER=project.folder)


@pytest.mark.spark
@pytest.mark.usefixtures("lend")
@pytest.mark.parametrize("mistake", BY_CODE, ids=lambda each: each["makes"])
def test_a_mistake_in_the_code(workshop: Workshop, mistake: dict[str, Any]):
    name, outcome = workshop.plan(mistake["makes"])
    judge(outcome, mistake, NAME=name, LINE=workshop.line(mistake["makes"]))


def test_the_table_is_one_of_different_mistakes():
    done = [each.get("makes") or each["mistake"] for each in MISTAKES]
    assert len(done) == len(set(done)) >= 60
    assert all(each.keys() <= KEYS for each in MISTAKES)


KEYS = {"mistake", "change", "to", "options", "command", "makes", "modules", "usage", "exit",
        "says", "fix"}  # fmt: skip

"""The digest of carried code: what the code does counts, and nothing else."""

import importlib
import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tidemill.planning.code.behaviour import first_difference
from tidemill.runtime.code.carried import carried_lines

HELPERS = """\
FACTOR = 2
NAMES = {"a", "b", "c", "d"}

def twice(x):
    return x * FACTOR

def unused(x):
    return x
"""
CODE = """\
import helpers
from helpers import twice
import os.path

LIMITS = {"low": 1, "high": 9}

class Base:
    def lowest(self):
        return 0

class Scorer(Base):
    weight = 3

    def __init__(self, bonus):
        self.bonus = bonus

    def on_row(self, row):
        return self.add(row)

    def add(self, row):
        if row in {"u", "v", "w", "x", "y"}:
            return None
        return row * self.weight + self.bonus

def add_tax(x, rate=0.2):
    try:
        return x + x * rate
    except TypeError:
        return None

def make(by):
    def inner(x):
        return [each for each in (x, by) if each]
    return inner

def score(x):
    return add_tax(twice(x)) + LIMITS["low"] + helpers.twice(x)

def lazy(x):
    from helpers import twice
    return twice(x)

roots = [score, make(3), Scorer(1), Scorer, lazy, lambda x: add_tax(x)]
"""


def lines_of(folder: Path, code: str = CODE, helpers: str = HELPERS) -> list[str]:
    """The lines of the modules as written here, imported anew."""
    for name in ("helpers", "work"):
        sys.modules.pop(name, None)
    (folder / "helpers.py").write_text(helpers, "utf-8")
    (folder / "work.py").write_text(code, "utf-8")
    importlib.invalidate_caches()
    for cached in folder.glob("__pycache__/*"):
        cached.unlink()
    return carried_lines(("a value", root) for root in importlib.import_module("work").roots)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("helpers", "work"):
        sys.modules.pop(name, None)


def test_comments_docstrings_and_the_layout_of_lines_do_not_count(folder):
    written = CODE.replace(
        "    def add(self, row):\n", '    def add(self, row):\n        """Add."""\n\n'
    )
    written = written.replace(
        "def add_tax(x, rate=0.2):\n",
        "def add_tax(\n    x,\n    rate=0.2,  # VAT\n):\n    'Doc.'\n",
    )
    written = written.replace(
        "class Scorer(Base):\n", "# why\nclass Scorer(Base):\n    '''Doc.'''\n"
    )
    written = written.replace("        if row in", "        # none\n\n        if row in")
    written = written.replace(
        "each for each in (x, by) if each", "\n    other\n  for other in (x, by)\n if other"
    )
    written += "\ndef another():\n    return 1\n"
    assert written.count("Doc.") == 2
    first = lines_of(folder)
    assert (
        lines_of(folder, written, "# a comment\n" + HELPERS.replace("return x\n", "return -x\n"))
        == first
    )


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("x + x * rate", "x + x / rate", "function work.add_tax"),
        ("rate=0.2", "rate=0.3", "function work.add_tax"),
        ("except TypeError", "except ValueError", "function work.add_tax"),
        ("row * self.weight", "row + self.weight", "function work.Scorer.add"),
        ("weight = 3", "weight = 4", "class work.Scorer"),
        ("return 0\n", "return 1\n", "function work.Base.lowest"),
        ('"x", "y"}', '"x", "z"}', "function work.Scorer.add"),
        ('{"low": 1', '{"low": 2', "function work.score"),
        ("make(3)", "make(4)", "function work.make.<locals>.inner"),
        ("Scorer(1)", "Scorer(2)", "a value"),
        ("if each]", "if not each]", "function work.make.<locals>.inner"),
        ("lambda x: add_tax(x)", "lambda x: add_tax(-x)", "function work.<lambda>"),
    ],
)
def test_what_differs_is_named(folder, old, new, name):
    first = lines_of(folder)
    assert old in CODE
    found = first_difference(first, lines_of(folder, CODE.replace(old, new)))
    assert found == (name, name)


def test_helpers_of_other_modules_count_as_far_as_they_are_used(folder):
    first = lines_of(folder)
    changed = lines_of(folder, helpers=HELPERS.replace("x * FACTOR", "x + FACTOR"))
    assert first_difference(first, changed) == ("function helpers.twice",) * 2
    changed = lines_of(folder, helpers=HELPERS.replace("FACTOR = 2", "FACTOR = 3"))
    assert first_difference(first, changed) == ("function helpers.twice",) * 2
    assert lines_of(folder, helpers=HELPERS.replace("def unused", "def never")) == first


def test_a_helper_that_is_imported_inside_of_a_function_counts(folder):
    code = CODE.replace("roots = [", "roots = [lazy][:1] or [")
    first = lines_of(folder, code)
    changed = lines_of(folder, code, HELPERS.replace("x * FACTOR", "x + FACTOR"))
    assert first_difference(first, changed) == ("function helpers.twice",) * 2


def test_two_processes_come_to_the_same_lines(folder):
    lines_of(folder)
    script = textwrap.dedent(
        """
        import sys, work
        from tidemill.runtime.code.carried import carried_lines
        junk = [object() for _ in range(int(sys.argv[1]))]
        print(*carried_lines(("a value", root) for root in work.roots), sep="\\n")
        """
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script, seed],
            env={
                **os.environ,
                "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
                "PYTHONHASHSEED": seed,
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2000")
    ]
    assert told[0] == told[1] == "\n".join(lines_of(folder)) + "\n"


def test_an_installed_package_counts_by_its_version(folder):
    code = "import polars, numpy\ndef f(x):\n    return numpy.sin(polars.lit(x))\nroots = [f]\n"
    packages = {line.split(" ", 1)[1] for line in lines_of(folder, code) if "package" in line}
    assert {text.split()[1] for text in packages} == {"polars", "numpy"}


def test_values_that_look_into_themselves_end(folder):
    code = "a = {}\na['a'] = [a]\ndef f(x):\n    return f(a) + g(x)\n"
    code += "def g(x):\n    return f(x)\nroots = [f, a]\n"
    assert lines_of(folder, code) == lines_of(folder, code)


def test_equal_names_stay_apart(folder):
    code = "def make(n):\n    return lambda x: x + n\nroots = [make(1), make(2)]\n"
    first = lines_of(folder, code)
    assert len([line for line in first if "<lambda>" in line]) == 2
    swapped = lines_of(folder, code.replace("make(1), make(2)", "make(2), make(1)"))
    assert first_difference(first, swapped) is not None
    assert all(a != b for a, b in itertools.combinations(first, 2))

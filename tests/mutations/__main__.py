"""``python -m tests.mutations [--only TEXT]``: break every rule once; a test must fail each time.

A whole round is written into docs/reliability.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.breakages import BREAKAGES, Breakage
from tests.report import when, write_sections

TITLE = "Broken on purpose"
_ABOUT = """\
Every line is a rule of the protocol that was broken by hand in a copy of the sources
(`tests/mutations/breakages.py` has the change), and the first test that failed of it."""
ROOT = Path(__file__).parents[2]
_LONGEST = 900


@dataclass(frozen=True)
class Outcome:
    """What became of one breakage."""

    breakage: Breakage
    caught_by: str | None  # the first test that failed
    seconds: float


def try_out(breakage: Breakage) -> Outcome:
    """Break a copy of the sources, and run the tests over it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "tidemill" / breakage.file
        text = file.read_text("utf-8")
        assert text.count(breakage.old) == 1, f"{breakage.file}: {breakage.old!r} is not there once"
        file.write_text(text.replace(breakage.old, breakage.new), "utf-8")
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider",
             *breakage.test.split()],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT}"}, timeout=_LONGEST,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    failed = [line for line in found.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    caught = failed[0].split(" ")[1].split("[")[0] if found.returncode == 1 and failed else None
    if found.returncode not in (0, 1):
        caught = None
        print(found.stdout[-2000:], found.stderr[-2000:])
    return Outcome(breakage, caught, time.monotonic() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", default="", help="rules or files with this text")
    given = arguments.parse_args()
    chosen = [found for found in BREAKAGES if given.only in f"{found.rule} {found.file}"]
    outcomes = []
    for breakage in chosen:
        outcome = try_out(breakage)
        outcomes.append(outcome)
        verdict = outcome.caught_by or "NOT CAUGHT"
        print(f"{outcome.seconds:5.0f} s  {breakage.rule}: {verdict}", flush=True)
    missed = [outcome for outcome in outcomes if outcome.caught_by is None]
    if len(outcomes) == len(BREAKAGES):
        write_sections({TITLE: _section(outcomes)})
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} caught")
    raise SystemExit(1 if missed else 0)


def _section(outcomes: list[Outcome]) -> str:
    caught = sum(outcome.caught_by is not None for outcome in outcomes)
    head = [
        f"## {TITLE}",
        "",
        f"{_ABOUT} **{caught} of {len(outcomes)} caught** ({when()}).",
        "",
        "| rule | broken in | caught by |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *map(_line, outcomes), ""])


def _line(outcome: Outcome) -> str:
    made = outcome.breakage
    test = "**nothing**" if outcome.caught_by is None else f"`{outcome.caught_by}`"
    return f"| {made.rule} | `{made.file}` | {test} |"


if __name__ == "__main__":
    main()

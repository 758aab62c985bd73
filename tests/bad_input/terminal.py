"""The command line in this process, as the console script runs it, and what it left."""

import contextlib
import io
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from tidemill.cli.main import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.planning.plan import RunPlan


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal."""

    code: int
    out: str
    err: str

    def refuses(self, text: str, code: int = 2) -> None:
        """It ended with exactly this error, and nothing else was said."""
        assert self.err == f"error: {text}\n"
        assert (self.code, self.out) == (code, "")

    def fails(self, text: str) -> str:
        """A run began and ended with exactly this error; its id, which may be in the text as RUN.

        Before the error only lines of progress were said.
        """
        begun = re.fullmatch(r"run (\w+)\n", self.out)
        assert begun, self.out + self.err
        progress, _, error = self.err.partition("error: ")
        assert error == text.replace("RUN", begun[1]) + "\n"
        assert all(line.startswith(("slice ", "risk: ")) for line in progress.splitlines())
        assert self.code == 1
        return begun[1]

    def misused(self, text: str) -> None:
        """Click refused the arguments with this text."""
        usage, _, error = self.err.partition("\n\nError: ")
        assert usage.startswith("Usage: tidemill ")
        assert error == f"{text}\n"
        assert (self.code, self.out) == (2, "")


def run_cli(*arguments: object, cwd: Path) -> Outcome:
    """The command in this process, as the console script runs it."""
    given = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    before, path, level, code = Path.cwd(), list(sys.path), logging.root.level, 0
    os.chdir(cwd)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(sys, "argv", ["tidemill", *given]),
            mock.patch.object(logging.root, "handlers", []),
            mock.patch("tidemill.cli.options._opened", []),
        ):
            cli(prog_name="tidemill")
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        os.chdir(before)
        sys.path[:] = path
        logging.root.setLevel(level)
    if "--verbose" not in given:
        assert "Traceback" not in err.getvalue() + out.getvalue()
    return Outcome(code, out.getvalue(), err.getvalue())


@contextmanager
def lent(spark: "SparkSession") -> Iterator[None]:
    """Commands in this process use the shared session instead of one they start and stop."""
    from tidemill.runtime.code.cache import forget, recall
    from tidemill.runtime.driving.executor import execute
    from tidemill.runtime.plans.graphing import make_graph
    from tidemill.runtime.plans.planner import code_fingerprint, make_plan

    def planned(loaded: Any, request: Any, now: Any, *_: Any) -> "RunPlan":
        if request.pipeline in loaded.config.pipelines:
            name = code_fingerprint(loaded, request.pipeline)
            known = recall(loaded.home, name)
            if known is not None and not known.facts.behaviour:
                forget(loaded.home, name)  # made up by a test; what runs must be known wholly
        return make_plan(loaded, request, now, spark)

    with (
        mock.patch("tidemill.project.facade.make_plan", planned),
        mock.patch("tidemill.runtime.starts.starting.make_plan", planned),
        mock.patch(
            "tidemill.runtime.plans.graphing.make_graph",
            lambda *given, **named: make_graph(*given, **{**named, "spark": spark}),
        ),
        mock.patch(
            "tidemill.runtime.driving.executor.execute",
            lambda *given, goal, **_: execute(*given, spark=spark, goal=goal),
        ),
    ):
        yield

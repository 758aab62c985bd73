"""Every error Tidemill raises: one base, one family per phase of the work.

An error says what failed, where, what was found, and (``fix``) what to do next. Facts are also
attributes, so that a program can act on them without parsing the text.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import IntEnum
from typing import ClassVar

_LINE = "tidemill-error: "
"""What the line begins with by which an error travels inside the text of another exception."""


class ExitCode(IntEnum):
    """How a command ends, for scripts."""

    DONE = 0
    ERROR = 1  # it failed while it was done, or a run is not in a state for it
    MISUSE = 2  # options, the YAML or a name ask for what cannot be done as written
    CANCELLED = 3  # the run was cancelled, or the user answered no
    BROKEN = 4  # the run is finished, and an expectation of it does not hold
    TIMEOUT = 124  # `wait` waited as long as it was told to, and the run goes on
    STOPPED = 130  # a backfill was told to stop, and can be resumed; or Ctrl-C


class TidemillError(Exception):
    """The base of all our errors.

    ``message`` says what failed and what was found, ``where`` names the place (a YAML path, a
    file, a pipeline), ``fix`` is the operator's next action. Other facts come as keywords.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.ERROR
    """How a command ends that fails with it."""

    def __init__(self, message: str, *, where: str = "", fix: str = "", **facts: object) -> None:
        """Keep the parts apart, so that faces can lay them out."""
        self.message = message
        self.where = where
        self.fix = fix
        self.facts = facts
        super().__init__(self.text())

    def text(self) -> str:
        """The whole error as one short text."""
        head = f"{self.where}: {self.message}" if self.where else self.message
        return f"{head}\n  fix: {self.fix}" if self.fix else head

    def line(self) -> str:
        """The whole error as one line of ASCII that :func:`find_error` makes an error of again.

        A class of a connector travels as its family.
        """
        family = next(found for found in type(self).__mro__ if found.__module__ == __name__)
        parts = {"family": family.__name__, "message": self.message, "where": self.where}
        return _LINE + json.dumps(
            {**parts, "fix": self.fix, "facts": self.facts}, default=str, skipkeys=True
        )


class ConfigError(TidemillError):
    """The YAML, or what it points at, cannot be used as written."""

    exit_code = ExitCode.MISUSE


class PlanError(TidemillError):
    """The request is understood but cannot be carried out as asked."""

    exit_code = ExitCode.MISUSE


class SourceError(TidemillError):
    """An archive or a log cannot be read, or contradicts what was pinned."""


class SinkError(TidemillError):
    """A table cannot be written or committed."""


class RunError(TidemillError):
    """A run cannot be started, resumed or controlled."""


class RequestError(RunError):
    """A command names a run that is not there, or asks of a run what it cannot be asked."""

    exit_code = ExitCode.MISUSE


class DeclinedError(TidemillError):
    """The user was asked, and answered no."""

    exit_code = ExitCode.CANCELLED


@contextmanager
def errors_told() -> Iterator[None]:
    """Let our errors leave a Python process of Spark's whole; all other errors leave as they are.

    Everything of ours that Spark calls in an executor, or in the process that plans batches, runs
    in this. Spark hands on nothing but the text of the traceback, which shows an exception's
    notes: the error's line is one. The easy mistake is to decorate a generator, whose body runs
    later: there it is a ``with`` inside.
    """
    try:
        yield
    except TidemillError as error:
        if not any(note.startswith(_LINE) for note in getattr(error, "__notes__", ())):
            error.add_note(error.line())
        raise


def find_error(text: str) -> TidemillError | None:
    """The error of ours that a text of Spark's tells of: the last one, which is the outermost."""
    end = len(text)
    while (end := text.rfind(_LINE, 0, end)) >= 0:
        try:
            found, _ = json.JSONDecoder().raw_decode(text, end + len(_LINE))
            family: type = globals()[found["family"]]
            if issubclass(family, TidemillError):
                where, fix, facts = found["where"], found["fix"], found["facts"]
                return family(found["message"], where=where, fix=fix, **facts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # a text that only looks like the line of an error
    return None


def nearest(word: str, allowed: Iterable[str]) -> str:
    """A hint such as ``did you mean 'lateness'?``, or the list of what is allowed."""
    options = sorted(allowed)
    same = [option for option in options if option.casefold() == word.casefold()]
    close = same or get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"allowed: {', '.join(options)}" if options else "nothing is defined yet"

"""Every error Tidemill raises: one base, one family per phase of the work.

An error says what failed, where, what was found, and (``fix``) what to do next. Facts are also
attributes, so that a program can act on them without parsing the text.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TidemillError(Exception):
    """The base of all our errors.

    ``message`` says what failed and what was found, ``where`` names the place (a YAML path, a
    file, a pipeline), ``fix`` is the operator's next action. Other facts come as keywords.
    """

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


class ConfigError(TidemillError):
    """The YAML, or what it points at, cannot be used as written."""


class PlanError(TidemillError):
    """The request is understood but cannot be carried out as asked."""


class SourceError(TidemillError):
    """An archive or a log cannot be read, or contradicts what was pinned."""


class SinkError(TidemillError):
    """A table cannot be written or committed."""


class RunError(TidemillError):
    """A run cannot be started, resumed or controlled."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """A hint such as ``did you mean 'lateness'?``, or the list of what is allowed."""
    options = sorted(allowed)
    close = get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"allowed: {', '.join(options)}" if options else "nothing is defined yet"

"""A page: an address, a template, and the function that gives its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import RequestError
from tidemill.ui.asking import Answers
from tidemill.ui.commands import Command
from tidemill.ui.desk import Desk
from tidemill.ui.launching import Launches
from tidemill.ui.limits import Limits
from tidemill.ui.looks import Looks

Facts = dict[str, Any]
_DIGITS = 18


@dataclass(frozen=True)
class Office:
    """What all pages share."""

    desk: Desk
    limits: Limits = field(default_factory=Limits)
    read_only: bool = False
    launches: Launches = field(default_factory=Launches)
    answers: Answers = field(default_factory=Answers)
    looks: Looks = field(default_factory=Looks)

    def command(self, *words: str) -> Command:
        """A command of the command line over this project."""
        return Command(words, self.desk.config)


@dataclass(frozen=True)
class Asked:
    """What a request asks for: the names in its address, and its query."""

    names: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    is_live: bool = False  # only the parts are asked for that change by themselves

    def text(self, name: str) -> str | None:
        """A value of the query; None if it is not there or empty."""
        return self.query.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """A whole number of the query; None if it is not there."""
        text = self.text(name)
        if text is not None and not (text.isdecimal() and len(text) < _DIGITS):
            raise RequestError(f"{text!r} is not a number", fix=f"write {name} as a whole number")
        return None if text is None else int(text)

    def count(self, name: str, default: int, most: int) -> int:
        """How many the query asks for, at least 1 and at most what the page allows."""
        found = self.number(name)
        return default if found is None else max(1, min(found, most))


@dataclass(frozen=True)
class Page:
    """One page. Its parts that change are asked for again every so many seconds."""

    template: str
    facts: Callable[[Office, Asked], Facts]
    every: float = 2.0

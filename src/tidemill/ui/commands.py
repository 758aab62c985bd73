"""Commands of the command line: shown to be copied, and started as processes of their own.

Nothing of a request becomes a command but names that the project has, and values that are checked
here by the same parsers that the command line has. Each stands in one word with its option, so that
no value can become an option.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.config.loader import LoadedConfig
from tidemill.errors import PlanError
from tidemill.planning.requests import request, run_request
from tidemill.types import parse_duration, parse_instant, show_instant

DEFAULT = "tidemill.yaml"
_LENGTHS = {"slice": "--slice", "warm_up": "--warm-up", "look_ahead": "--look-ahead"}


@dataclass(frozen=True)
class Command:
    """One command: its words after ``tidemill``."""

    words: tuple[str, ...]
    config: Path

    @property
    def text(self) -> str:
        """As one types it; the YAML is named where it is not the usual one."""
        usual = self.config == Path(DEFAULT).absolute()
        named = () if usual else ("--config", str(self.config))
        return shlex.join(("tidemill", *self.words, *named))

    def argv(self, *more: str) -> list[str]:
        """As a process of its own is started."""
        config = ("--config", str(self.config))
        return [sys.executable, "-m", "tidemill.cli", *self.words, *more, *config]


@dataclass(frozen=True)
class Choice:
    """What somebody has chosen at the switch, as the form has it."""

    pipeline: str
    how: str = "backfill"  # backfill, hybrid, live
    fields: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_plan(self) -> bool:
        """Whether there is history to plan."""
        return self.how != "live"

    def plan(self, loaded: LoadedConfig) -> Command:
        """The dry run."""
        return Command(("plan", self.pipeline, *self._options(False)), loaded.path)

    def start(self, loaded: LoadedConfig) -> Command:
        """The run itself."""
        verb = "backfill" if self.how == "backfill" else "run"
        return Command((verb, self.pipeline, *self._options(True)), loaded.path)

    def _options(self, is_start: bool) -> Iterable[str]:
        if self.how not in ("backfill", "hybrid", "live"):
            raise PlanError(f"{self.how!r} is not a way to run", fix="backfill, hybrid or live")
        if self.has_plan:
            yield f"--from={self._moment('from')}"
        if self.how == "backfill":
            yield f"--to={self._moment('to')}"
        yield from (f"--region={region}" for region in self.regions)
        wheres = [line.strip() for line in self._given("where").splitlines() if line.strip()]
        yield from (f"--where={where}" for where in wheres)
        for name, option in _LENGTHS.items():
            if text := self._given(name):
                parse_duration(text)
                yield f"{option}={text}"
        yield from (f"--param={name}={value}" for name, value in self.params.items())
        if is_start:
            yield from self._at_start()

    def _at_start(self) -> Iterable[str]:
        for name in ("rate", "name"):
            if text := self._given(name):
                if name == "rate" and not text.replace("_", "").isdecimal():
                    raise PlanError(
                        f"{text!r} is not a number of rows per second", fix="write for example 5000"
                    )
                yield f"--{name}={text}"

    def _given(self, name: str) -> str:
        return self.fields.get(name, "").strip()

    def _moment(self, name: str) -> str:
        text = self._given(name)
        if not text:
            raise PlanError(f"--{name} TIME is missing", fix="choose where the rows begin and end")
        return show_instant(parse_instant(text))

    def check(self) -> None:
        """Refuse what the command would refuse before it reads anything."""
        tuple(self._options(True))
        given: dict[str, Any] = {name: self._given(name) or None for name in (*_LENGTHS, "rate")}
        if self.how == "backfill":
            request(self.pipeline, self._moment("from"), self._moment("to"), **given)
        else:
            start = self._moment("from") if self.has_plan else None
            run_request(self.pipeline, start, **given)

"""What was found when a run's output was compared with production: a file in the run's folder.

`compare` writes it. Publishing reads it to know which state of production somebody has looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.jsonvalue import JsonValue, dump_json, load_json
from tidemill.runfolder.folder import COMPARED

if TYPE_CHECKING:
    from tidemill.runfolder.folder import RunFolder


@dataclass(frozen=True)
class ComparedOutput(JsonValue):
    """One output of the run beside production's rows of the same range."""

    output: str
    place: str  # the table of the other side
    snapshot: int | None  # the state of that table; None: it was not there, or was empty
    shadow: int | None  # the state of the run's own table
    span: tuple[int, int]  # µs: the range of the output
    equal: int
    different: int
    only_here: int
    only_there: int
    match: float  # percent
    at: int  # µs: when it was compared


@dataclass(frozen=True)
class _Compared(JsonValue):
    outputs: tuple[ComparedOutput, ...]


def write_compared(folder: RunFolder, found: Sequence[ComparedOutput]) -> None:
    """Keep what was found; outputs that were not compared this time keep what was found before."""
    kept = {each.output: each for each in (*read_compared(folder), *found)}
    text = dump_json(_Compared(tuple(kept.values())), indent=1)
    (folder.files / COMPARED).write(text)


def read_compared(folder: RunFolder) -> tuple[ComparedOutput, ...]:
    """The latest comparison of each output; none if nobody has compared, or the file is damaged."""
    try:
        return load_json(_Compared, (folder.files / COMPARED).read_text()).outputs
    except (FileNotFoundError, ValueError):
        return ()

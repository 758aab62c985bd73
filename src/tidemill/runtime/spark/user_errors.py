"""An exception of a user's function in a Python worker: where it was, and for which values.

Spark hands on nothing but the text of a traceback. So the worker adds a note to the exception, one
line of JSON, and the driver finds the line again. Without our daemon the traceback itself tells.
"""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

_LINE = "tidemill-arguments: "
_PLAIN = (type(None), bool, int, float, str, Decimal, date, time)
_LONGEST = 60
_MOST = 8
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.M)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Exit|Interrupt|Warning)\b.*)$", re.M)


@dataclass(frozen=True)
class UserError:
    """What failed in the user's code."""

    function: str
    file: Path
    line: int
    raised: str  # "ValueError: no such price"
    values: str = ""  # "price='x', count=5"; empty if they are not known


def note_arguments(error: BaseException) -> None:
    """Add to an exception what the functions on its way were called with. In a worker."""
    told = {
        f"{frame.f_code.co_filename}:{frame.f_code.co_name}": _arguments(frame)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if "site-packages" not in frame.f_code.co_filename
    }
    error.add_note(_LINE + json.dumps(told))


def _arguments(frame: FrameType) -> str:
    code, found = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = [f"{name}={_shown(found[name])}" for name in names if name in found]
    return ", ".join(given[:_MOST]) + (", …" if len(given) > _MOST else "")


def _shown(value: Any) -> str:
    """A value, cut; of anything but a plain value, which may be large, only its type."""
    if not isinstance(value, _PLAIN):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def find_user_error(text: str, base: Path) -> UserError | None:
    """The exception of the user's code that a text of Spark's tells of, by its innermost frame.

    Only files in the project's folder ``base`` are the user's.
    """
    frames = [each for each in _FRAME.finditer(text) if Path(each["file"]).is_relative_to(base)]
    if not frames:
        return None
    last = frames[-1]
    raised = _RAISED.search(text, last.end())
    if raised is None or "site-packages" in last["file"]:
        return None
    function = "a lambda" if last["function"] == "<lambda>" else f"{last['function']}()"
    values = _noted(text).get(f"{last['file']}:{last['function']}", "")
    return UserError(function, Path(last["file"]), int(last["line"]), raised[1][:500], values)


def _noted(text: str) -> dict[str, str]:
    at = text.rfind(_LINE)
    try:
        found = json.JSONDecoder().raw_decode(text, at + len(_LINE))[0] if at >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def tell_arguments() -> None:
    """Let every worker that is forked from this process note arguments. For our daemon only."""
    from pyspark import worker

    hand_on = worker.handle_worker_exception

    def handle(error: BaseException, *given: Any, **named: Any) -> None:
        try:
            note_arguments(error)
        finally:
            hand_on(error, *given, **named)

    worker.handle_worker_exception = handle

"""Find the lines of the user's code that made the nodes of a plan.

Python calls a profiler at the end of every call. While a pipeline's function runs, ours notes each
DataFrame that PySpark or Tidemill returns to the user's code, with the line of the call; the top
node of its plan was made there. A node of an SQL text knows its line itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tidemill.runtime.code.catalyst import nodes_of
from tidemill.runtime.code.packages import OURS, is_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Authored:
    """The DataFrames that calls in the user's code returned, each with the line of the call."""

    made: list[tuple[DataFrame, str]] = field(default_factory=list)

    def lines(self, spark: SparkSession, analysed: Any, sql: str | None) -> list[str]:
        """The line of every node of a plan, from the top; empty where it is not known.

        ``sql`` is the name of the SQL text, of a pipeline that is one.
        """
        identity = spark._jvm.System.identityHashCode
        known: dict[int, str] = {}
        for frame, line in self.made:
            top = identity(frame._jdf.queryExecution().analyzed())
            known.setdefault(top, line)
        return [known.get(identity(node)) or _sql_line(node, sql) for node in nodes_of(analysed)]


@contextmanager
def authoring() -> Iterator[Authored]:
    """Note the lines inside the block, in this thread; nothing if it has a profiler already."""
    found = Authored()
    if sys.getprofile() is not None:
        yield found
        return
    sys.setprofile(_noting(found))
    try:
        yield found
    finally:
        sys.setprofile(None)


def _noting(found: Authored) -> Callable[[FrameType, str, Any], None]:
    from pyspark.sql import DataFrame

    def note(frame: FrameType, event: str, result: Any) -> None:
        if event == "return" and isinstance(result, DataFrame) and _is_ours(frame):
            caller = frame.f_back
            if caller is not None and not _is_ours(caller):
                line = _line(caller)
                if line:
                    found.made.append((result, line))

    return note


def _line(frame: FrameType | None) -> str:
    """The innermost line of the user's own code, below packages that are installed."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_ours(frame) and "site-packages" not in file and not is_python(file):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in OURS


def _sql_line(node: Any, sql: str | None) -> str:
    if sql is None:
        return ""
    line = node.origin().line()
    return f"{sql}:{line.get()}" if line.isDefined() else ""

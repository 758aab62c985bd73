"""What went wrong when the user's code was called to build DataFrames, in a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError, TidemillError
from tidemill.planning.code.streaming import ACTION, cause_of
from tidemill.runtime.code.calls import own_file
from tidemill.runtime.code.importing import describe, place_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Failure:
    """An error of the user's code: its text, its line (``pipelines.py:12``), what to do."""

    text: str
    place: str = ""
    fix: str = ""
    is_sparks: bool = False  # Spark refuses what the code asks for


def tell_failure(error: Exception, function: Callable[..., Any]) -> Failure:
    """What an exception of the function's says."""
    from pyspark.errors import AnalysisException, ParseException

    file = own_file(function)
    folder = file.parent if file else Path()
    place = place_in(error, folder) if file else ""
    if isinstance(error, AnalysisException | ParseException):
        text = first_lines(error)
        return Failure(text, place, ACTION.fix if ACTION.told in text else "", is_sparks=True)
    if isinstance(error, TidemillError):
        told = f"{error.where}: {error.message}" if error.where else error.message
        return Failure(told, place, error.fix)
    return Failure(describe(error, folder), place)


def first_lines(error: Any) -> str:
    """The part of Spark's message that says something."""
    text = str(error).split("JVM stacktrace")[0].split(";\n")[0]
    return " ".join(text.split())[:600]


def require_streamable(
    frame: DataFrame, refusal: Callable[[str, str, tuple[str, ...]], PlanError], told: str
) -> None:
    """Ask Spark whether it can run this as a stream; if not, raise what ``refusal`` makes of it.

    ``refusal`` gets a message, what to do, and what is called where the cause is.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    catalyst: Any = frame.sparkSession._jvm.org.apache.spark.sql
    try:
        catalyst.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), catalyst.streaming.OutputMode.Append()
        )
    except (AnalysisException, Py4JJavaError) as error:
        text = first_lines(error)
        cause = cause_of(text)
        message = f"Spark cannot run {told} as a stream: {text}"
        raise refusal(message, cause.fix, cause.calls) from None

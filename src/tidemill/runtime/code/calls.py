"""Find the lines of a pipeline's module, or of its SQL, at which something is called."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import TidemillError
from tidemill.runtime.code.loading import load_pipeline, sql_text

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.code.binding import GivenParams

_SHOWN = 3


def own_file(function: Callable[..., Any]) -> Path | None:
    """The file of a user's function; None for one of ours, which runs SQL."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = Path(code.co_filename) if code else None
    return None if file is None or file.is_relative_to(Path(__file__).parents[2]) else file


def find_calls(function: Callable[..., Any], names: Collection[str]) -> str:
    """Where the function's module calls one of the names: ``pipelines.py:12, 20``; or empty.

    Lines of the function itself come alone, if there are any: helpers of other pipelines do not.
    """
    file = own_file(function)
    try:
        tree = ast.parse(file.read_text("utf-8")) if file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return ""
    inside = [
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
        for line in _lines(node, names)
    ]
    lines = sorted(set(inside or _lines(tree, names)))
    shown = ", ".join(str(line) for line in lines[:_SHOWN])
    return f"{file.name}:{shown}" if file and lines else ""


def find_uses(loaded: LoadedConfig, given: GivenParams, calls: Collection[str]) -> str:
    """Where the code of a pipeline, Python or SQL, calls one of the names; or empty."""
    sql = loaded.config.pipelines[given.pipeline].sql
    if sql is not None:
        name = sql.strip() if sql.strip().endswith(".sql") else "sql"
        return find_in_sql(sql_text(loaded.base, sql), name, calls)
    with suppress(TidemillError):  # only where it is known from an earlier plan
        return find_calls(load_pipeline(loaded, given.pipeline, given).function, calls)
    return ""


def find_interceptor(
    loaded: LoadedConfig, given: GivenParams, name: str, calls: Collection[str]
) -> str:
    """Where the module of an interceptor of the pipeline calls one of the names; or empty."""
    with suppress(TidemillError):
        interceptors = load_pipeline(loaded, given.pipeline, given).interceptors
        return next((find_calls(i.function, calls) for i in interceptors if i.name == name), "")
    return ""


def find_in_sql(text: str, name: str, calls: Collection[str]) -> str:
    """Where a SQL text calls one of the names: ``sums.sql:3``; or empty."""
    pattern = _spelled(calls)
    lines = [at for at, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
    return f"{name}:{', '.join(map(str, lines[:_SHOWN]))}" if lines else ""


def _spelled(calls: Collection[str]) -> re.Pattern[str]:
    """A call in a text of SQL; some of Spark's functions need no brackets there."""
    return re.compile(rf"\b({'|'.join(map(re.escape, calls))})\b", re.IGNORECASE)


def _lines(tree: ast.AST, names: Collection[str]) -> list[int]:
    found = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = [
        (each.end_lineno or each.lineno) if isinstance(each, ast.Attribute) else each.lineno
        for each in found
        if (isinstance(each, ast.Attribute) and each.attr in names)
        or (isinstance(each, ast.Name) and each.id in names)
    ]
    return called or _lines_in_texts(tree, names)


def _lines_in_texts(tree: ast.AST, names: Collection[str]) -> list[int]:
    """Lines of texts that call a name, as ``F.expr("uuid()")`` does."""
    pattern = _spelled(names)
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [
        node.lineno
        for node in texts
        if isinstance(node.value, str) and "(" in node.value and pattern.search(node.value)
    ]

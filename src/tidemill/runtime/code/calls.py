"""Find the lines of a pipeline's module at which something is called."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

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


def _lines(tree: ast.AST, names: Collection[str]) -> list[int]:
    found = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [
        (each.end_lineno or each.lineno) if isinstance(each, ast.Attribute) else each.lineno
        for each in found
        if (isinstance(each, ast.Attribute) and each.attr in names)
        or (isinstance(each, ast.Name) and each.id in names)
    ]

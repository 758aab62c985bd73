"""Expressions of a plan as a person reads them: without ids, casts of constants, and the tail."""

import re

from tidemill.planning.code.tree import Tree

_ID = re.compile(r"#\d+L?(?:-T\d+ms)?")
_CAST = re.compile(r"(?<![\w.])cast\(([^()]*) as (?:[a-z_]+)(?:\(\d+(?:,\s?\d+)?\))?\)")
_OPEN, _CLOSED = "([{", ")]}"
LONGEST = 72
"""Characters of one expression that are shown."""


def shorten(text: str, longest: int = LONGEST) -> str:
    """At most so many characters, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def plain(text: str) -> str:
    """Spark's text of an expression without what only Spark needs."""
    text = _ID.sub("", text)
    while (found := _CAST.sub(r"\1", text)) != text:
        text = found
    while text.startswith("(") and text.endswith(")") and _is_one(text):
        text = text[1:-1]
    return text


def _is_one(text: str) -> bool:
    """Whether the first bracket is closed by the last character."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in _OPEN) - (sign in _CLOSED)
        if depth == 0:
            return at == len(text) - 1
    return False


def bracketed(text: str) -> list[list[str]]:
    """The lists in square brackets of a node's text, each cut at its own commas."""
    found: list[list[str]] = []
    depth, start = 0, 0
    for at, sign in enumerate(text):
        if sign in _OPEN:
            if depth == 0 and sign == "[":
                found.append([])
                start = at + 1
            depth += 1
        elif sign in _CLOSED:
            depth -= 1
            if depth == 0 and sign == "]" and found:
                found[-1].append(text[start:at].strip())
        elif sign == "," and depth == 1 and found:
            found[-1].append(text[start:at].strip())
            start = at + 1
    return [[each for each in items if each] for items in found]


def named(text: str) -> str:
    """``expression AS name`` as people write it: ``name = expression``."""
    expression, separator, name = plain(text).rpartition(" AS ")
    return f"{name} = {plain(expression)}" if separator else plain(text)


def rest(kind: str, text: str) -> str:
    """A node's text behind the name of its kind."""
    return plain(text.removeprefix("~").removeprefix(kind).strip().rstrip(","))


def column_name(expression: Tree) -> str:
    """The name of a column or of an expression that has one; else its kind."""
    name = expression.fields.get("name")
    if name is not None:
        return str(name)
    if expression.kind in ("Cast", "KnownNullable", "NormalizeNaNAndZero") and expression.children:
        return column_name(expression.children[0])
    return expression.kind

"""The row-wise nodes of a plan as steps that users wrote: filter, select, explode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.planning.code.lineage import fold_name, table_name, time_struct
from tidemill.planning.code.tree import Tree
from tidemill.planning.graph.wording import bracketed, named, plain, rest, shorten

_SILENT = frozenset(
    (
        *("SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef"),
        *("EventTimeWatermark", "ResolvedHint", "Repartition", "RepartitionByExpression"),
        *("RebalancePartitions", "Expand", "UnresolvedHint"),
    )
)
"""Nodes that change no row, or that belong to another node."""
_COLUMNS = 6


@dataclass(frozen=True)
class Step:
    """One row-wise step: a word for the node's name, and what it does."""

    word: str
    text: str
    line: str = ""


def is_silent(node: Tree, text: str, line: str) -> bool:
    """Whether a row-wise node is not worth a word: Spark or Tidemill has put it there."""
    if node.kind in _SILENT:
        return True
    if node.kind == "Project":
        is_choice = all(map(_is_renamed_to_itself, node.expressions()))
        is_ours = not line or (is_choice and _completes(node))
        return is_ours if text else is_choice
    return node.kind == "Filter" and not line and rest("Filter", text).startswith("isnotnull(")


def _is_renamed_to_itself(column: Tree) -> bool:
    """A column as it is, perhaps with other metadata."""
    names = [part.fields.get("name") for part in (column, *column.children)]
    if column.kind == "Alias" and len(set(names)) == 1:
        column = column.children[0]
    return column.kind == "AttributeReference"


def _completes(node: Tree) -> bool:
    """Whether a fold, a join by names or an explode ends with this choice of columns."""
    below = node.children[0]
    below = below.children[0] if below.kind == "RepartitionByExpression" else below
    return fold_name(below) is not None or below.kind in ("Join", "Generate")


def row_step(node: Tree, text: str, line: str) -> Step:
    """A row-wise node as people say it."""
    if node.kind == "Filter":
        return Step("filter", shorten(f"filter {rest('Filter', text)}".strip()), line)
    if node.kind == "Project":
        return Step("select", _chosen(text), line)
    if node.kind == "Generate":
        expression = plain(text.removeprefix("~").removeprefix("Generate").strip())
        made = expression.split(", [")[0].split("),")[0]
        return Step("explode", shorten(made + ")" * (made.count("(") - made.count(")"))), line)
    if node.kind == "Join":
        tables = [name for part in node.walk() if (name := table_name(part)) is not None]
        beside = ", ".join(dict.fromkeys(tables)) or "a table"
        return Step("join", f"join {beside}", line)
    word = _word(node)
    return Step(word, word, line)


def _word(node: Tree) -> str:
    """A kind of node as users write it: MapInPandas → mapInPandas."""
    if node.kind in ("GlobalLimit", "LocalLimit"):
        return "limit"
    return node.kind[:1].lower() + node.kind[1:]


def _chosen(text: str) -> str:
    """What a choice of columns computes; the columns alone if it computes nothing."""
    lists = bracketed(text)
    columns = lists[0] if lists else []
    computed = [named(each) for each in columns if " AS " in each]
    shown = computed or [plain(each) for each in columns]
    more = f", … {len(shown) - _COLUMNS} more" if len(shown) > _COLUMNS else ""
    parts = [shorten(each) for each in shown[:_COLUMNS]]
    return f"select {', '.join(parts)}{more}".strip()


def without_window(below: Tree, said: Callable[[Tree], tuple[str, str]]) -> Tree:
    """The rows that are grouped, below what computes the window for an aggregate."""
    if below.kind not in ("Project", "Expand", "Filter"):
        return below
    inner, found = below, False
    while inner.kind in ("Project", "Expand", "Filter", "UpdateEventTimeWatermarkColumn"):
        if any(time_struct(part) or part.kind == "SessionWindow" for part in inner.parts()):
            found, inner = True, inner.children[0]
        elif inner.kind == "Filter" and (
            (found and rest("Filter", said(inner)[0]).startswith("isnotnull("))
            or (not found and not said(inner)[1])
        ):
            inner = inner.children[0]
        else:
            break
    return inner if found else below

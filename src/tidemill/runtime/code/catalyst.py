"""Read from Spark's plan objects what their JSON lacks: texts, SQL, types, Python functions."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemill.errors import PlanError
from tidemill.planning.code.clocks import cast_specials, typed_specials
from tidemill.planning.code.lineage import FOLD, PAIR, PREPARE, table_name
from tidemill.planning.code.tree import Tree, build_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LITERAL_ROWS = 10_000
"""A table that the code makes is part of the code: each start reads and compares its rows."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_ALL = 2**31 - 1
"""Spark shortens long lists of columns unless it is given a limit."""


_FLOATING = ("double", "float")
_SMALL = ("tinyint", "smallint", "int")
"""Whole numbers whose sum a double holds exactly, up to millions of the largest values."""

_CHOOSING = frozenset(
    ("any_value", "first", "last", "max", "max_by", "min", "min_by", "mode", "percentile")
)
"""Aggregates that choose one of the values: they add nothing."""


def find_clocks(spark: SparkSession, analysed: Any) -> tuple[str, ...]:
    """The texts in a plan that Spark replaces by the current time, such as 'now' or 'today'.

    Spark's own rule and parser decide which texts those are.
    """
    rules = spark._jvm.org.apache.spark.sql.catalyst.optimizer
    before = rules.ReplaceExpressions.apply(analysed)
    after = rules.SpecialDatetimeValues.apply(before)
    found: set[str] = set()
    if not before.fastEquals(after):
        old, new = (build_tree(json.loads(plan.toJSON())) for plan in (before, after))
        found.update(cast_specials(old, new))
    if _has_times(build_tree(json.loads(analysed.toJSON()))):
        found.update(name for text in _parsed(analysed) for name in typed_specials(text))
    return tuple(sorted(found))


def find_rounded(analysed: Any) -> tuple[str, ...]:
    """The aggregates of a plan whose last digits depend on the order of the rows, as SQL text."""
    expressions = (
        expression
        for node in _walk(analysed)
        if node.nodeName() == "Aggregate"
        for expression in _items(node.expressions())
    )
    found = (function for each in expressions for function in _aggregates(each))
    return tuple(sorted({function.sql() for function in found if _rounds(function)}))


def _aggregates(expression: Any) -> Iterator[Any]:
    if expression.nodeName() == "AggregateExpression":
        yield expression.aggregateFunction()
        return
    for child in _items(expression.children()):
        yield from _aggregates(child)


def _rounds(function: Any) -> bool:
    if function.dataType().simpleString() not in _FLOATING or function.prettyName() in _CHOOSING:
        return False
    added = [child.dataType().simpleString() for child in _items(function.children())]
    return not (function.prettyName() in ("avg", "try_avg") and added[0] in _SMALL)


def spoken_nodes(spark: SparkSession, analysed: Any) -> list[str]:
    """Spark's text for every node of a plan, from the top, with the rows of literal tables."""
    return [f"{node.simpleString(_ALL)}{_literal_rows(spark, node)}" for node in _walk(analysed)]


def _literal_rows(spark: SparkSession, node: Any) -> str:
    """The rows of a node that is a table by itself: VALUES, or ``spark.createDataFrame([…])``."""
    kind = node.getClass().getSimpleName()
    if kind == "LocalRelation":
        return f" {node.data().mkString(', ')}"
    if kind != "LogicalRDD":
        return ""
    frame = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, node)
    rows = list(frame.limit(LITERAL_ROWS + 1).toJSON().collectAsList())
    if len(rows) > LITERAL_ROWS:
        raise PlanError(
            f"a table that the code makes has more than {LITERAL_ROWS:,} rows",
            fix="write it to a file, and name it in tables: of the YAML",
        )
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12]
    return f" of {len(rows)} rows, {digest}"


def carried_functions(analysed: Any, plan: Tree) -> list[tuple[str, Any]]:
    """The Python functions that a plan sends to executors, unpickled, each with a description."""
    found = []
    for node, told in zip(_walk(analysed), plan.walk(), strict=True):
        if table_name(told) is None and any(
            p.kind.startswith("Python") for e in told.expressions() for p in e.walk()
        ):
            parts = (part for each in _items(node.expressions()) for part in _walk(each))
            functions = (p for p in parts if p.getClass().getSimpleName().startswith("Python"))
            found += [(_words(str(part.name())), _unpickled(part.func())) for part in functions]
    return found


def _words(name: str) -> str:
    for prefix in (FOLD, PREPARE):
        if name.startswith(prefix):
            return f"the parameters of the fold {name.removeprefix(prefix)}"
    if name.startswith(PAIR):
        return f"the parameters of the pair {name.removeprefix(PAIR)}"
    return f"the function {name}"


def _unpickled(function: Any) -> Any:
    """The function and its result's type; if it cannot be unpickled, a text with its size."""
    from pyspark.core import broadcast

    command = bytes(function.command().unsafeArray())
    variables = function.broadcastVars()
    for index in range(variables.size()):
        each = variables.get(index)
        kept = broadcast.Broadcast(path=each.value().path())
        broadcast._broadcastRegistry.setdefault(each.id(), kept)
    try:
        found = pickle.loads(command)
        if isinstance(found, broadcast.Broadcast):  # a long command is sent as a variable
            found = pickle.loads(found.value)
    except Exception:
        return f"a function of {len(command)} bytes"
    return found


def _has_times(plan: Tree) -> bool:
    """Whether the plan may hold a typed time literal; rows of VALUES no longer show their texts."""
    return any(
        node.kind == "LocalRelation"
        or any(
            part.kind == "Literal" and part.fields.get("dataType") in _TIMES
            for expression in node.expressions()
            for part in expression.walk()
        )
        for node in plan.walk()
    )


def _parsed(plan: Any) -> Iterator[str]:
    """The texts in SQL that the nodes and literals of a plan were parsed from."""
    for node in _walk(plan):
        yield from _origin(node, whole=True)
        for each in _items(node.expressions()):
            for leaf in _items(each.collectLeaves()):
                yield from _origin(leaf, whole=False)


def _origin(part: Any, *, whole: bool) -> Iterator[str]:
    origin = part.origin()
    if origin.sqlText().isDefined():
        text = str(origin.sqlText().get())
        if whole or not origin.stopIndex().isDefined():
            yield text
        else:
            yield text[origin.startIndex().get() : origin.stopIndex().get() + 1]


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in _items(node.children()):
        yield from _walk(child)


def _items(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]

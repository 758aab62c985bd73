"""What a pipeline does, as lines of text that two processes can compare.

A run may only continue with code that does what it did when the run was planned. Comparing source
files is not enough: a comment changes them, but an environment variable that the code reads does
not. So the plan that the code builds is written down, one line per node, without anything that
differs from process to process, and also one line per function that the plan sends to executors.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from tidemill.planning.code.lineage import output_of, source_of, table_name
from tidemill.planning.code.tree import Tree

_NOISE = frozenset(
    (
        *("exprId", "resultId", "qualifier", "nonInheritableMetadataKeys", "product-class"),
        *("child", "children", "left", "right", "func", "desc", "isTempView", "identifier"),
        *("hint", "jvmId", "nodeId", "stats", "origin", "originStatsPlan", "id", "cteId"),
    )
)
"""Fields that differ between two builds of the same plan, or that say nothing about its rows."""
BY_LOT = frozenset(("Rand", "Randn", "RandStr", "Shuffle", "Uniform", "Uuid"))
"""Spark picks a random seed for each of these expressions whenever the plan is built."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_DIGITS = 12
_PYTHON = re.compile(r"Python \d+\.\d+")
"""The line before those of functions."""
_PARAMETERS = ("the parameters of the fold ", "the parameters of the pair ")
_SECRET = 4
"""A value of fewer characters is not treated as a secret."""


def behaviour_line(text: str, whole: str | None = None) -> str:
    """A line that is shown as ``text`` and compared by ``whole``."""
    digest = hashlib.sha256((text if whole is None else whole).encode()).hexdigest()
    return f"{digest[:_DIGITS]} {text}"


def first_difference(old: Sequence[str], new: Sequence[str]) -> tuple[str, str] | None:
    """The first line in which two behaviours differ, as shown; a missing line is empty."""
    for before, after in zip_longest(old, new, fillvalue=""):
        if before[:_DIGITS] != after[:_DIGITS]:
            return before[_DIGITS + 1 :].strip(), after[_DIGITS + 1 :].strip()
    return None


def is_same_plan(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether two behaviours differ in nothing but the inside of Python functions.

    The parameters of folds and pairs count as part of the plan: what was pinned follows from them.
    """
    return _plan_part(old) == _plan_part(new)


def _plan_part(lines: Sequence[str]) -> list[str]:
    starts = (at for at, line in enumerate(lines) if _PYTHON.fullmatch(line[_DIGITS + 1 :]))
    head = next(starts, len(lines))
    own = [line for line in lines[head:] if any(each in line for each in _PARAMETERS)]
    return [line[:_DIGITS] for line in (*lines[:head], *own)]


def describe_difference(old: str, new: str) -> str:
    """Both sides of a difference in a few words, on one line."""
    old, new = " ".join(old.split()), " ".join(new.split())
    if old == new:
        return f"{new} changed"
    if not old:
        return f"{new} is new"
    return f"{old} is gone" if not new else f"it was: {old}; it is: {new}"


def plan_lines(
    output: str, plan: Tree, texts: Sequence[str], hide: Iterable[str] = (), *, clock: bool = False
) -> list[str]:
    """The behaviour of one output.

    ``texts`` are Spark's own texts for the nodes, in the order of `Tree.walk`. ``hide`` are values
    that may be secret: a literal that contains one is not shown. ``clock`` says that the user has
    allowed the code to use the current time, so times are not compared.
    """
    writer = _Writer(clock, tuple(value for value in hide if len(value) >= _SECRET))
    words = iter(texts)
    return [
        behaviour_line(f"{output}: {'  ' * depth}{shown}", f"{output}: {depth} {whole}")
        for depth, shown, whole in writer.lines(plan, words)
    ]


@dataclass
class _Writer:
    """Writes one plan. Ids are replaced by numbers in the order in which they first occur."""

    clock: bool
    hidden: tuple[str, ...]
    numbers: dict[str, int] = field(default_factory=dict)

    def lines(
        self, plan: Tree, words: Iterator[str], depth: int = 0
    ) -> Iterator[tuple[int, str, str]]:
        """For each node: its depth, the text to show and the text to compare."""
        source = _stream(plan)
        if source is not None:
            for _ in plan.walk():
                next(words)
            yield depth, f"stream {source}", f"stream {source}"
            return
        table = table_name(plan)
        if table is not None:
            for _ in plan.walk():
                next(words)
            columns = ", ".join(_column(attribute) for attribute in output_of(plan))
            yield depth, f"table {table}", f"table {table}: {columns}"
            return
        spoken = self._spoken(plan, next(words))
        yield depth, self._shown(plan, spoken), self._whole(plan, spoken)
        for child in plan.children:
            yield from self.lines(child, words, depth + 1)

    def _spoken(self, node: Tree, text: str) -> str:
        """Spark's text for a node, with ids replaced by our own numbers."""
        if node.kind.startswith("CTERelation"):
            text = re.sub(  # the tilde stands before nodes of streams
                r"^(~?\w+) (\d+)", lambda at: f"{at[1]} {self._number(f'cte {at[2]}')}", text
            )
        return re.sub(r"#(\d+)", lambda at: f"#{self._number(at[1])}", text)

    def _shown(self, node: Tree, spoken: str) -> str:
        for part in node.parts():
            value = part.fields.get("value") if part.kind == "Literal" else None
            if isinstance(value, str) and any(each in value for each in self.hidden):
                spoken = spoken.replace(value, "…")
        return spoken

    def _whole(self, node: Tree, spoken: str) -> str:
        """The text to compare: Spark's text lacks types, its JSON lacks options, so it has both."""
        told = [f"{key}={self._value(value)}" for key, value in _fields(node)]
        chance = any(part.kind in BY_LOT for part in node.parts())
        clock = self.clock and any(_is_time(part) for part in node.parts())
        return " ".join([node.kind if chance or clock else spoken, *told])

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers) + 1)

    def _value(self, value: Any) -> str:
        if isinstance(value, list):
            if value and all(isinstance(item, dict) and "num-children" in item for item in value):
                return self._expression(next(Tree("", {"": value}, ()).expressions()))
            return f"[{', '.join(self._value(item) for item in value)}]"
        if isinstance(value, dict):
            pairs = (f"{k}: {self._value(v)}" for k, v in sorted(value.items()) if k not in _NOISE)
            return f"{{{', '.join(pairs)}}}"
        return str(value)

    def _expression(self, part: Tree) -> str:
        if part.kind in BY_LOT or (self.clock and _is_time(part)):
            return f"{part.kind}(…)"
        inner = [self._expression(child) for child in part.children]
        told = [f"{key}={self._value(value)}" for key, value in _fields(part)]
        number = part.expression_id
        name = part.kind if number is None else f"{part.kind}#{self._number(str(number))}"
        return f"{name}({'; '.join([*inner, *told])})"


def _fields(node: Tree) -> Iterator[tuple[str, Any]]:
    return (
        (key, value)
        for key, value in node.fields.items()
        if key not in _NOISE and value is not None and value not in ([], {})
    )


def _column(attribute: Tree) -> str:
    """A column of a reference table: its name, its type and its role."""
    told = (attribute.fields.get(key) for key in ("name", "dataType", "metadata"))
    return " ".join(json.dumps(each, sort_keys=True) for each in told)


def _is_time(part: Tree) -> bool:
    return part.kind == "Literal" and part.fields.get("dataType") in _TIMES


def _stream(node: Tree) -> str | None:
    """The source, if the node is a stream as the pipeline gets it: relation, watermark, columns."""
    for kind in ("Project", "EventTimeWatermark"):
        if node.kind != kind:
            return None
        node = node.children[0]
    return source_of(node) if node.kind.startswith("StreamingRelation") else None

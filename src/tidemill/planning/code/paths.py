"""Chains of operators: how long a path holds rows back.

After watermark W an operator may still output rows with times down to W less its delay. Delays add
up along a path: a fold works with W less the delays in front of it, and Spark's own watermark is
held back by the delays of the folds in front of a native stateful operator (``spare``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tidemill.errors import PlanError
from tidemill.planning.code.chains import FoldFacts, FoldPin, FoldUse
from tidemill.planning.code.lineage import (
    PREPARE,
    Lineage,
    Origin,
    fold_input,
    fold_name,
    output_of,
    source_of,
)
from tidemill.planning.code.tree import Tree
from tidemill.types import micros_of

STATEFUL = {
    "Join": "join",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithState": "transformWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
}
"""Spark's own stateful operators beside aggregates, each as users write it."""
_NATIVE = {"Aggregate", *STATEFUL} - {"Join"}  # a join only if both sides are streams
_SHUFFLES = ("RepartitionByExpression", "Aggregate", "Distinct", "Deduplicate")


@dataclass(frozen=True)
class _Front:
    """By how much rows out of a part of the plan may be delayed, and whether Spark delays them."""

    delay: timedelta = timedelta()
    native: bool = False


def _furthest(fronts: Iterable[_Front]) -> _Front:
    """The front of parts of the plan side by side."""
    found = [_Front(), *fronts]
    return _Front(max(front.delay for front in found), any(front.native for front in found))


def is_streaming_join(node: Tree) -> bool:
    """A join of two streams keeps state; one with a static side does not."""
    return node.kind == "Join" and all(_is_streaming(child) for child in node.children)


def _is_streaming(plan: Tree) -> bool:
    return any(node.kind.startswith("StreamingRelation") for node in plan.walk())


def is_native(node: Tree) -> bool:
    """Whether Spark keeps state for the node between batches."""
    return node.kind in _NATIVE or is_streaming_join(node)


def may_share_shuffles(outputs: Sequence[Tree]) -> bool:
    """Whether Spark may run equal shuffles of a query once, and use their rows several times.

    Of two equal shuffles the second becomes a leaf of the executed plan. Spark derives the next
    batch's watermarks from that plan, and a native stateful operator that finds no source below it
    gets none: it keeps its rows for ever. So every native operator must have a first shuffle below
    it, which is certain where streams come together nowhere but in the only one there is.
    ``outputs`` are optimised plans: CTEs stand where they are used.
    """
    nodes = [node for plan in outputs for node in plan.walk()]
    if not any(map(is_native, nodes)):
        return True
    meetings = [node for node in nodes if is_native(node) or _is_meeting(node)]
    return len(outputs) == 1 and len(meetings) == 1


def _is_meeting(node: Tree) -> bool:
    return sum(_is_streaming(child) for child in node.children) > 1


class Paths:
    """The paths of one output's plan."""

    def __init__(self, plan: Tree, folds: Mapping[str, FoldUse], lineage: Lineage) -> None:
        """``folds`` by name."""
        self.plan, self.uses, self.lineage = plan, folds, lineage

    def folds(self, united: bool) -> list[FoldFacts]:
        """The folds with their pins; ``united``: the output is one of several."""
        return [
            FoldFacts(
                use,
                FoldPin(
                    behind=micros_of(front.delay),
                    native=front.native,
                    reshuffle=reshuffle,
                    reads=_reads(node),
                    sources=_sources(node),
                ),
            )
            for node, use, reshuffle in self._walk(self.plan, united)
            for front in (self._behind(node, use),)
        ]

    def _walk(self, node: Tree, exposed: bool) -> Iterator[tuple[Tree, FoldUse, bool]]:
        """Every fold, and whether a node between it and the next shuffle renumbers tasks."""
        name = fold_name(node)
        if name is not None:
            yield node, self.uses[name], exposed
            exposed = False
        elif node.kind == "Union" or (
            node.kind == "Repartition" and not node.fields.get("shuffle", True)
        ):
            exposed = True
        elif node.kind in _SHUFFLES or is_native(node) or node.kind == "Repartition":
            exposed = False
        for child in node.children:
            yield from self._walk(child, exposed)

    def _behind(self, node: Tree, use: FoldUse) -> _Front:
        """The delays in front of a fold, found from where its time column comes from."""
        if use.delay is not None:
            native = any(is_native(below) for child in node.children for below in child.walk())
            return _Front(use.delay, native)
        return _furthest(self._delay_of(origin, use) for origin in self._time_of(node, use))

    def _time_of(self, node: Tree, use: FoldUse) -> frozenset[Origin]:
        """Where the fold's time comes from; found by its name in the columns the fold reads."""
        below = fold_input(node, use.name)
        for attribute in output_of(below):
            if attribute.fields.get("name") == use.time:
                return self.lineage.below(below).origins(attribute)
        return frozenset((Origin("unknown"),))

    def _delay_of(self, origin: Origin, use: FoldUse) -> _Front:
        if origin.kind == "event_time":
            return _Front()
        if origin.kind in ("window_start", "window_end"):
            return _Front(origin.size if origin.kind == "window_start" else timedelta(), True)
        if origin.kind == "fold":
            before = self.uses[origin.fold]
            delay = before.times[origin.column].delay
            if delay is not None:
                node = next(n for n in self.plan.walk() if fold_name(n) == before.name)
                front = self._behind(node, before)
                return _Front(front.delay + delay, front.native)
        raise PlanError(
            f"how far the time {use.time!r} may lie behind the watermark is not known",
            where=use.name,
            fix="go by the event time, a window's start or end or the time of another fold, or say "
            "delay=: the longest it may lie behind",
            column=use.time,
        )

    def spare(self) -> int:
        """By how much Spark's watermark must be held back, in microseconds."""
        held = [
            self._front(child)
            for node in self.plan.walk()
            if is_native(node)
            for child in node.children
        ]
        for front in held:
            if front.native and front.delay:
                raise PlanError(
                    "a fold that holds rows back stands between two of Spark's own stateful "
                    "operators: Spark would drop its rows as late",
                    fix="use windows(…), attribute(…) or deduplicate(…) instead of the second one",
                )
        return max((micros_of(f.delay) for f in held if not f.native), default=0)

    def _front(self, node: Tree) -> _Front:
        name = fold_name(node)
        if name is not None:
            use = self.uses[name]
            front = self._behind(node, use)
            delays = [reach.delay for reach in use.times.values() if reach.delay is not None]
            return _Front(front.delay + max(delays, default=timedelta()), front.native)
        if is_native(node):
            return _Front(timedelta(), True)
        return _furthest(map(self._front, node.children))


def _sources(node: Tree) -> tuple[str, ...]:
    """The sources below a node."""
    leaves = (below for below in node.walk() if below.kind.startswith("StreamingRelation"))
    return tuple(sorted({source for leaf in leaves if (source := source_of(leaf))}))


def _reads(node: Tree) -> str | None:
    """The source of a fold, if nothing but a choice of columns is between the two."""
    below = node.children[0].children[0].children[0]  # under the shuffle and the bucket
    if fold_name(below, PREPARE) is not None:
        below = below.children[0]
    while below.kind in ("Project", "SubqueryAlias", "EventTimeWatermark"):
        if below.kind == "Project" and any(
            column.kind != "AttributeReference" for column in below.expressions()
        ):
            return None
        below = below.children[-1]
    return source_of(below) if below.kind.startswith("StreamingRelation") else None

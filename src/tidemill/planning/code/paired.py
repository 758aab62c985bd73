"""What a plan does with rows that were paired with instances, and what of it cannot be right.

Behind a pairing the rows of many instances share every operator. Each instance has a past of its
own, so an operator may keep nothing that two of them share: it is a fold, and the instance's id is
in its key. And no row may reach an output without an instance, because rows are read once for every
group of instances that is caught up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidemill.jsonvalue import JsonValue
from tidemill.planning.code.chains import FoldUse, PairUse
from tidemill.planning.code.lineage import (
    fold_input,
    fold_name,
    output_of,
    pair_name,
    passed_on,
    source_of,
)
from tidemill.planning.code.paths import STATEFUL, is_native
from tidemill.planning.code.tree import Tree


@dataclass(frozen=True)
class PairFault(JsonValue):
    """Something that instances cannot be given right with, as a person is told it.

    ``calls`` are what the code may call at the place where it does it.
    """

    message: str
    fix: str
    calls: tuple[str, ...] = ()


@dataclass
class _Rows:
    """What is known of a node's rows: which columns hold an instance's id, and what was not paired.

    ``bare`` are the sources whose rows come here without an instance.
    """

    ids: frozenset[int] = frozenset()
    bare: tuple[str, ...] = ()
    is_paired: bool = False


@dataclass
class Paired:
    """The pairings of one output's plan. ``keys`` has the id's column in the key of each fold."""

    plan: Tree
    folds: Mapping[str, FoldUse]
    pairs: Mapping[str, PairUse]
    keys: dict[str, str] = field(default_factory=dict)
    faults: list[PairFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Go through the plan, from its sources up."""
        if self.pairs:
            self._require_paired(self._rows(self.plan))

    def _rows(self, node: Tree) -> _Rows:
        pairing, fold = pair_name(node), fold_name(node)
        if pairing is not None:
            return self._pair(node, self.pairs[pairing])
        if fold is not None:
            return self._fold(node, self.folds[fold])
        if node.kind.startswith("StreamingRelation"):
            return _Rows(bare=(source_of(node) or "a stream",))
        if node.kind == "Union":
            return self._unite(node)
        found = self._beside(node)
        if node.kind == "Project":
            found.ids |= set(_renamed(node, found.ids))
        if found.is_paired and is_native(node):
            self._refuse_native(node)
        return found

    def _beside(self, node: Tree) -> _Rows:
        return _together([self._rows(child) for child in node.children])

    def _unite(self, node: Tree) -> _Rows:
        """A column of a union is an id if it is one on every side; it has the first one's id."""
        sides = [self._rows(child) for child in node.children]
        found = _together(sides)
        columns = zip(*(output_of(child) for child in node.children), strict=False)
        ids = {
            each[0].expression_id
            for each in columns
            if all(c.expression_id in side.ids for c, side in zip(each, sides, strict=True))
        }
        found.ids = frozenset(number for number in ids if number is not None)
        return found

    def _pair(self, node: Tree, use: PairUse) -> _Rows:
        below = self._rows(node.children[0])
        if below.is_paired:
            self._fault(
                f"{use.argument}.pair stands behind another one: a row belongs to one instance",
                "pair each stream once, with all conditions in one where=",
                ("pair",),
            )
        own = {each.expression_id for each in output_of(node) if each.fields["name"] == use.id}
        own |= {
            out.expression_id for out, read in passed_on(node) if read.expression_id in below.ids
        }
        return _Rows(frozenset(n for n in own if n is not None), (), True)

    def _fold(self, node: Tree, use: FoldUse) -> _Rows:
        read = fold_input(node, use.name)
        below, keys = self._rows(read), use.shape.keys if use.shape is not None else ()
        if not below.is_paired:
            return below
        self._require_paired(below)
        held = [
            str(each.fields["name"]) for each in output_of(read)
            if each.fields["name"] in keys and each.expression_id in below.ids
        ]  # fmt: skip
        if not held:
            self._refuse_key(use, keys)
            return _Rows(frozenset(), (), True)
        self.keys[use.name] = held[0]
        ids = (a.expression_id for a in output_of(node) if a.fields["name"] in held)
        return _Rows(frozenset(n for n in ids if n is not None), (), True)

    def _require_paired(self, rows: _Rows) -> None:
        for source in rows.bare:
            self._fault(
                f"rows of {source!r} go on without an instance",
                f"let every way from a stream to an output pass {self._argument}.pair(…)",
            )

    @property
    def _argument(self) -> str:
        return next(iter(self.pairs.values())).argument

    def _refuse_native(self, node: Tree) -> None:
        name = STATEFUL.get(node.kind, "groupBy")
        self._fault(
            f"{name} stands behind {self._argument}.pair: native stateful operators follow one "
            "global watermark, and each instance has a past of its own",
            "use a fold of Tidemill with the instance's id in its key: windows(…), sessions(…), "
            "deduplicate(…), attribute(…), top_n(…), unique_counts(…), process(…)",
            (name, "agg") if name == "groupBy" else (name,),
        )

    def _refuse_key(self, use: FoldUse, keys: tuple[str, ...]) -> None:
        wanted = next(iter(self.pairs.values())).id
        told = ", ".join(keys) or "nothing"
        self._fault(
            f"the fold {use.name} stands behind {self._argument}.pair, and its key ({told}) does "
            "not have the instance's id: instances would share its state",
            f"add {wanted!r} to its key",
            (use.kind,),
        )

    def _fault(self, message: str, fix: str, calls: tuple[str, ...] = ()) -> None:
        found = PairFault(message, fix, calls)
        if found not in self.faults:
            self.faults.append(found)


def _together(sides: list[_Rows]) -> _Rows:
    ids = frozenset(number for rows in sides for number in rows.ids)
    bare = tuple(dict.fromkeys(source for rows in sides for source in rows.bare))
    return _Rows(ids, bare, any(rows.is_paired for rows in sides))


def _renamed(node: Tree, ids: frozenset[int]) -> Iterator[int]:
    """The ids' columns under other names."""
    for expression in node.expressions():
        inner = expression
        while inner.kind == "Alias":
            inner = inner.children[0]
        is_id = inner.kind == "AttributeReference" and inner.expression_id in ids
        if is_id and expression.expression_id is not None:
            yield expression.expression_id

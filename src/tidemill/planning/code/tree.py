"""Spark's ``TreeNode.toJSON`` as a tree of plain values, so that plans are read without Spark."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tree:
    """A node of a logical plan or of an expression."""

    kind: str
    fields: dict[str, Any]
    children: tuple["Tree", ...]

    def walk(self) -> Iterator["Tree"]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self) -> Iterator["Tree"]:
        """The expression trees this plan node holds, in the order of its fields."""
        for value in self.fields.values():
            yield from _expressions(value)

    def parts(self) -> Iterator["Tree"]:
        """Every part of the expressions that this plan node holds."""
        return (part for expression in self.expressions() for part in expression.walk())

    @property
    def expression_id(self) -> int | None:
        """The id by which attributes and aliases refer to each other."""
        found = self.fields.get("exprId")
        return int(found["id"]) if isinstance(found, dict) else None


def build_tree(flat: list[dict[str, Any]]) -> Tree:
    """The tree of a pre-order list in which every node says how many children follow."""
    tree, rest = _take(flat, 0)
    if rest != len(flat):
        raise ValueError(f"{len(flat) - rest} nodes left over in a plan of {len(flat)}")
    return tree


def _take(flat: list[dict[str, Any]], index: int) -> tuple[Tree, int]:
    node = flat[index]
    index += 1
    children = []
    for _ in range(node["num-children"]):
        child, index = _take(flat, index)
        children.append(child)
    fields = {key: value for key, value in node.items() if key not in ("class", "num-children")}
    return Tree(node["class"].rsplit(".", 1)[-1], fields, tuple(children)), index


def _expressions(value: Any) -> Iterator[Tree]:
    if not isinstance(value, list) or not value:
        return
    if all(isinstance(item, dict) and "num-children" in item for item in value):
        yield build_tree(value)
    else:
        for item in value:
            yield from _expressions(item)

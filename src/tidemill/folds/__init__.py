"""Stateful operators that obey the slicing law, used as ``df.transform(sessions(…))``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.folds.builtin import *  # noqa: F403

_OPERATORS = ("attribute", "deduplicate", "fold", "process", "sessions", "top_n", "udf",
              "unique_counts", "windows", "Context", "Processor")  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the operators when one is used, because a run without folds needs none of them."""
    if name not in _OPERATORS:
        raise AttributeError(f"module 'tidemill.folds' has no attribute {name!r}")
    from tidemill.folds import builtin

    return getattr(builtin, name)

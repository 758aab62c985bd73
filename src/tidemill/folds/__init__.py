"""Stateful operators that obey the slicing law, used as ``df.transform(sessions(…))``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.folds.builtin import (
        attribute,
        deduplicate,
        fold,
        process,
        sessions,
        top_n,
        unique_counts,
        windows,
    )
    from tidemill.folds.own.processor import Context, Processor

__all__ = [
    "Context",
    "Processor",
    "attribute",
    "deduplicate",
    "fold",
    "process",
    "sessions",
    "top_n",
    "unique_counts",
    "windows",
]


def __getattr__(name: str) -> Any:
    """Import an operator when it is used, because a run without folds needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'tidemill.folds' has no attribute {name!r}")
    from tidemill.folds import builtin
    from tidemill.folds.own import processor

    return getattr(builtin if hasattr(builtin, name) else processor, name)

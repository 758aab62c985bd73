"""Write a streaming pipeline once in PySpark; run it live, over its history, or both."""

from typing import TYPE_CHECKING, Any

from tidemill.pipeline import Pipeline, pipeline

if TYPE_CHECKING:
    from tidemill.folds.builtin import (
        as_of,
        attribute,
        deduplicate,
        fold,
        process,
        sessions,
        top_n,
        unique_counts,
        windows,
    )
    from tidemill.instances import Instances
    from tidemill.project import Project, load

__all__ = [
    "Instances",
    "Pipeline",
    "Project",
    "as_of",
    "attribute",
    "deduplicate",
    "fold",
    "load",
    "pipeline",
    "process",
    "sessions",
    "top_n",
    "unique_counts",
    "windows",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the project's machinery only when it is used: a pipeline file needs none of it."""
    if name in ("Project", "load"):
        from tidemill import project

        return getattr(project, name)
    if name == "Instances":
        from tidemill.instances import Instances

        return Instances
    if name in __all__:
        from tidemill.folds import builtin

        return getattr(builtin, name)
    raise AttributeError(f"module 'tidemill' has no attribute {name!r}")

"""The YAML file: one frozen model per section, and the loader.

They are imported when they are asked for: Spark's source process needs the section of an archive,
and neither the loader nor a YAML parser.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.config.catalog import CatalogConfig
    from tidemill.config.loader import load_config
    from tidemill.config.pipeline import PipelineConfig, SourceConfig
    from tidemill.config.project import ProjectConfig
    from tidemill.config.sink import SinkConfig
    from tidemill.config.spark import SparkConfig
    from tidemill.config.stream import StreamConfig

_HOMES = {
    "CatalogConfig": "catalog",
    "load_config": "loader",
    "PipelineConfig": "pipeline",
    "SourceConfig": "pipeline",
    "ProjectConfig": "project",
    "SinkConfig": "sink",
    "SparkConfig": "spark",
    "StreamConfig": "stream",
}

__all__ = [
    "CatalogConfig",
    "PipelineConfig",
    "ProjectConfig",
    "SinkConfig",
    "SourceConfig",
    "SparkConfig",
    "StreamConfig",
    "load_config",
]


def __getattr__(name: str) -> Any:
    """What is re-exported, on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The YAML file: one frozen model per section, and the loader."""

from tidemill.config.catalog import CatalogConfig
from tidemill.config.loader import load_config
from tidemill.config.pipeline import PipelineConfig, SourceConfig
from tidemill.config.project import ProjectConfig
from tidemill.config.sink import IcebergSink, KafkaSink, SinkConfig
from tidemill.config.spark import SparkConfig
from tidemill.config.stream import IcebergArchive, ParquetArchive, StreamConfig

__all__ = [
    "CatalogConfig",
    "IcebergArchive",
    "IcebergSink",
    "KafkaSink",
    "ParquetArchive",
    "PipelineConfig",
    "ProjectConfig",
    "SinkConfig",
    "SourceConfig",
    "SparkConfig",
    "StreamConfig",
    "load_config",
]

"""The YAML file: one frozen model per section, and the loader."""

from tidemill.config.catalog import CatalogConfig
from tidemill.config.loader import load_config
from tidemill.config.pipeline import PipelineConfig, SinkConfig, SourceConfig
from tidemill.config.project import ProjectConfig
from tidemill.config.spark import SparkConfig
from tidemill.config.stream import IcebergArchive, KafkaLive, ParquetArchive, StreamConfig

__all__ = [
    "CatalogConfig",
    "IcebergArchive",
    "KafkaLive",
    "ParquetArchive",
    "PipelineConfig",
    "ProjectConfig",
    "SinkConfig",
    "SourceConfig",
    "SparkConfig",
    "StreamConfig",
    "load_config",
]

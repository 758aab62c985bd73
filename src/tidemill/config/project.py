"""The whole file: catalog, Spark, streams, pipelines, and how they refer to each other."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from tidemill.config.catalog import CatalogConfig
from tidemill.config.pipeline import PipelineConfig
from tidemill.config.section import Duration, FunctionNames, Section
from tidemill.config.spark import SparkConfig
from tidemill.config.stream import StreamConfig
from tidemill.config.table import TABLES, TableConfig


class ProjectConfig(Section):
    """tidemill.yaml."""

    catalog: CatalogConfig = CatalogConfig()
    spark: SparkConfig = SparkConfig()
    home: str = Field(".tidemill", description="Where runs, checkpoints and the registry are kept.")
    keep_snapshots: Duration = Field(
        timedelta(hours=6),
        description="How long the files of a table's old snapshots stay for whoever reads them.",
    )
    streams: dict[str, StreamConfig] = Field(min_length=1, description="By name.")
    tables: dict[str, Annotated[TableConfig, TABLES]] = Field(
        {}, description="Reference tables, by name: an argument of that name is the table."
    )
    interceptors: FunctionNames = Field(
        [],
        description="module:function, beside the YAML: called with (place, name, DataFrame) at "
        "every source and every sink of every pipeline; they return the DataFrame to go on with.",
    )
    pipelines: dict[str, PipelineConfig] = Field({}, description="By name.")

    def interceptors_of(self, pipeline: str) -> list[str]:
        """The interceptors of a pipeline in the order in which they are called."""
        own = self.pipelines[pipeline].interceptors
        return list(dict.fromkeys([*self.interceptors, *own]))

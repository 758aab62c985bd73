"""``spark:``: where Spark runs and any of its settings."""

from pydantic import Field

from tidemill.config.section import Section


class SparkConfig(Section):
    """The Spark session. Local by default, with all cores of this machine."""

    master: str = Field("local[*]", description="A Spark master, for example spark://host:7077.")
    memory: str | None = Field(None, description="The driver's heap, for example 4g.")
    conf: dict[str, str | int | float | bool] = Field(
        {}, description="Any Spark setting. spark.driver.extraJavaOptions replaces our own options."
    )

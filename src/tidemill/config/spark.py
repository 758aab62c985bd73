"""``spark:``: where Spark runs and any of its settings."""

import re

from pydantic import Field, field_validator

from tidemill.config.section import Section
from tidemill.errors import nearest

_MASTER = re.compile(
    r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://.+|yarn|k8s://.+"
)
_MASTERS = ("local", "local[2]", "local[*]", "spark://host:7077", "yarn", "k8s://https://host:443")


class SparkConfig(Section):
    """The Spark session. Local by default, with all cores of this machine."""

    master: str = Field("local[*]", description="A Spark master, for example spark://host:7077.")
    memory: str | None = Field(None, description="The driver's heap, for example 4g.")
    conf: dict[str, str | int | float | bool] = Field(
        {}, description="Any Spark setting. spark.driver.extraJavaOptions replaces our own options."
    )

    @field_validator("master")
    @classmethod
    def _known_master(cls, value: str) -> str:
        if _MASTER.fullmatch(value) is None:
            hint = nearest(value, _MASTERS)
            raise ValueError(f"{value!r} is not a Spark master; {hint}")
        return value

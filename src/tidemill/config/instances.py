"""``instances:`` of a pipeline: where its instances are, and how late ones are caught up."""

from datetime import timedelta

from pydantic import Field, field_validator, model_validator

from tidemill.config.section import Duration, Section


class InstancesConfig(Section):
    """The table of a pipeline's instances, one per row; every other column is a parameter."""

    table: str = Field(description="namespace.table in the catalog, with one row per instance.")
    id: str = Field(description="The column of an instance's id.")
    from_: str = Field(alias="from", description="The column of the period's first moment.")
    to: str = Field(description="The column of the first moment after the period.")
    gather: Duration = Field(
        timedelta(minutes=1),
        description="How long a live run waits for more instances whose period began before now: "
        "those that come within it share one scan of the archive.",
    )
    yield_: int | None = Field(
        None,
        alias="yield",
        description="At most so many rows per second are read by that scan. Without it, the scan "
        "slows down while the live run's lag grows.",
    )

    @property
    def rate(self) -> int | None:
        """How many rows a scan reads per second, at most."""
        return self.yield_

    @field_validator("yield_", mode="before")
    @classmethod
    def _rate(cls, value: object) -> object:
        is_rate = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is not None and not is_rate:
            raise ValueError(f"{value!r} is no number of rows per second, 20000")
        return value

    @model_validator(mode="after")
    def _three_columns(self) -> "InstancesConfig":
        names = (self.id, self.from_, self.to)
        if len(set(names)) < len(names):
            raise ValueError(f"id, from and to are three columns, found {', '.join(names)}")
        return self

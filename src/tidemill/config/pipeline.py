"""``pipelines:``: the code, what it reads, where it writes."""

from datetime import timedelta
from typing import Literal

from pydantic import Field, field_validator, model_validator

from tidemill.config.section import Duration, Section
from tidemill.config.sink import SinkConfig


class SourceConfig(Section):
    """How one parameter of the pipeline reads its stream; what is given here overrides it."""

    stream: str | None = Field(None, description="The stream; by default the parameter's name.")
    lateness: Duration | None = Field(None, description="Overrides the stream's lateness.")
    skew: Duration | None = Field(None, description="Overrides the stream's skew.")
    order: Literal["any", "position"] = Field(
        "any", description="'position': strict log order within each partition."
    )
    meta: bool = Field(False, description="Add _meta(ingest_time, partition, offset).")
    where: str | None = Field(None, description="A filter on the stream's columns, pushed down.")


class PipelineConfig(Section):
    """One pipeline: code or SQL, sources, sinks, and what cannot be computed from the code."""

    entry: str | None = Field(None, description="module:function, beside the YAML.")
    sql: str | None = Field(None, description="A .sql file beside the YAML, or the SQL itself.")
    max_misalignment: Duration = Field(
        timedelta(hours=1), description="No slice of the history is wider than this."
    )
    trigger: Duration = Field(
        timedelta(seconds=1), description="How often a live run takes what has come, at most."
    )
    warm_up: Duration | None = Field(
        None, description="How much input before --from is read to build state."
    )
    look_ahead: Duration | None = Field(
        None, description="How much input after --to is read to finish what began before it."
    )
    allow: list[str] = Field(
        [], description="Operators that do not keep the promise of equal rows, used all the same."
    )
    buckets: int | None = Field(
        None,
        ge=1,
        description="Into how many buckets folds divide their keys; as many as shuffles have.",
    )
    keep_batches: int = Field(
        10, ge=2, description="How many batches one can go back: state, offsets and journal."
    )
    sources: dict[str, SourceConfig] = Field({}, description="By parameter (or view) name.")
    sinks: dict[str, SinkConfig] = Field(min_length=1, description="By output name.")

    @field_validator("max_misalignment")
    @classmethod
    def _some_width(cls, value: timedelta) -> timedelta:
        if not value:
            raise ValueError("a slice cannot have no width; write for example '1h'")
        return value

    @model_validator(mode="after")
    def _one_code(self) -> "PipelineConfig":
        if (self.entry is None) == (self.sql is None):
            found = "both" if self.entry else "neither"
            raise ValueError(f"a pipeline has either entry: or sql:, found {found}")
        if self.entry is not None and self.entry.count(":") != 1:
            raise ValueError(f"entry is written module:function, found {self.entry!r}")
        return self

"""``pipelines:``: the code, what it reads, where it writes."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from tidemill.config.expect import PipelineExpect
from tidemill.config.instances import InstancesConfig
from tidemill.config.section import Duration, Section
from tidemill.config.sink import SinkConfig


class SourceConfig(Section):
    """How one argument of the pipeline reads its stream; what is given here overrides it."""

    stream: str | None = Field(None, description="The stream; by default the argument's name.")
    lateness: Duration | None = Field(None, description="Overrides the stream's lateness.")
    skew: Duration | None = Field(None, description="Overrides the stream's skew.")
    order: Literal["any", "position"] = Field(
        "any", description="'position': strict log order within each partition."
    )
    meta: bool = Field(False, description="Add _meta(ingest_time, partition, offset).")
    where: str | None = Field(None, description="A filter on the stream's columns, pushed down.")


def _param(value: Any) -> Any:
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        raise ValueError(
            f"a {kind} cannot be a parameter's value; write a text, a number, true or false, a "
            "date, a time or a duration"
        )
    return value


ParamValue = Annotated[
    Any,
    PlainValidator(_param),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
"""One value: which type it must have, the code says."""


class PipelineConfig(Section):
    """One pipeline: code or SQL, sources, sinks, and what cannot be computed from the code."""

    entry: str | None = Field(None, description="module:function, beside the YAML.")
    sql: str | None = Field(None, description="A .sql file beside the YAML, or the SQL itself.")
    max_misalignment: Duration | None = Field(
        None,
        description="How far a source may run ahead of another: no slice of history is wider. By "
        "default slices of history are as wide as their rows allow, and live sources stay "
        "within 1h.",
    )
    params: dict[str, ParamValue] = Field(
        {},
        description="Values of the function's other arguments by name; SQL has them as :name. "
        "Kept and shown: not for secrets.",
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
    expect: PipelineExpect = Field(
        PipelineExpect(), description="What must hold of a run; of its rows in every output."
    )
    instances: InstancesConfig | None = Field(
        None,
        description="Instances of the pipeline, which share one run: the argument annotated with "
        "tidemill.Instances.",
    )
    sources: dict[str, SourceConfig] = Field({}, description="By argument (or view) name.")
    sinks: dict[str, SinkConfig] = Field(min_length=1, description="By output name.")

    def source(self, name: str) -> SourceConfig:
        """How an argument reads its stream, also if the YAML does not name the argument."""
        return self.sources.get(name) or SourceConfig()

    @property
    def live_misalignment(self) -> timedelta:
        """How far apart live sources may be: nobody knows how much has yet to come of each."""
        return self.max_misalignment or timedelta(hours=1)

    @field_validator("max_misalignment")
    @classmethod
    def _some_width(cls, value: timedelta | None) -> timedelta | None:
        if value == timedelta():
            raise ValueError("a slice cannot have no width; write for example '1h'")
        return value

    @model_validator(mode="after")
    def _one_code(self) -> "PipelineConfig":
        if (self.entry is None) == (self.sql is None):
            found = "both" if self.entry else "neither"
            raise ValueError(f"a pipeline has either entry: or sql:, found {found}")
        if self.entry is not None and self.entry.count(":") != 1:
            raise ValueError(f"entry is written module:function, found {self.entry!r}")
        if self.instances is not None and self.entry is None:
            raise ValueError("a pipeline with instances: has entry:, because SQL cannot pair them")
        return self

"""``instances:`` of a pipeline: where its instances are, and how late ones are caught up."""

import re
from datetime import timedelta

from pydantic import Field, field_validator, model_validator

from tidemill.config.section import Duration, Section

_PERCENT = re.compile(r"(\d{1,3})\s*%")
_WHOLE = 100


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
    yield_: str | int | None = Field(
        None,
        alias="yield",
        description="What that scan leaves to the live rows: it takes at most this share of the "
        "cores ('50%'), or reads at most so many rows per second.",
    )

    @property
    def share(self) -> float | None:
        """The share of the cores that a scan takes at most, from 0 to 1."""
        found = _PERCENT.fullmatch(self.yield_) if isinstance(self.yield_, str) else None
        return None if found is None else int(found[1]) / _WHOLE

    @property
    def rate(self) -> int | None:
        """How many rows a scan reads per second, at most."""
        return self.yield_ if isinstance(self.yield_, int) else None

    @field_validator("yield_", mode="before")
    @classmethod
    def _share_or_rate(cls, value: object) -> object:
        percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        is_share = percent is not None and 0 < int(percent[1]) <= _WHOLE
        is_rate = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if value is not None and not is_share and not is_rate:
            raise ValueError(
                f"{value!r} is neither a share of the cores, '50%', nor a number of rows per "
                "second, 20000"
            )
        return value

    @model_validator(mode="after")
    def _three_columns(self) -> "InstancesConfig":
        names = (self.id, self.from_, self.to)
        if len(set(names)) < len(names):
            raise ValueError(f"id, from and to are three columns, found {', '.join(names)}")
        return self

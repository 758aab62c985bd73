"""``tables:``: tables that pipelines join with their streams; here is what all kinds share."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from tidemill.config.kinds import Kinds
from tidemill.config.section import Columns, Duration, Section

TABLES = Kinds(
    "tidemill.tables",
    {
        "iceberg": "tidemill.connectors.tables.iceberg:IcebergTable",
        "parquet": "tidemill.connectors.tables.files:ParquetTable",
        "csv": "tidemill.connectors.tables.files:CsvTable",
    },
)


class TableConfig(Section):
    """A table that pipelines join; a run sees the rows that it had when the run was planned."""

    type: str
    columns: Columns = Field([], description="The columns to take; by default all.")
    key: Columns = Field([], description="No two rows may be equal in these columns.")
    valid_from: str | None = Field(
        None,
        description="The column that says from when on a row holds for its key: tidemill.as_of(…) "
        "joins as of a row's event time.",
    )
    valid_to: str = Field(
        "valid_to",
        description="The name of the column that is added to a table with valid_from: until when "
        "a row holds, null for the last one of its key.",
    )
    zone: str = Field("UTC", description="The zone of valid_from, if its times carry none.")
    refresh: Duration | None = Field(
        None,
        description="How often a live run looks for new rows; by default never. A backfill never "
        "does.",
    )

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(
                f"{value!r} is not a time zone; write for example UTC or Europe/Berlin"
            ) from None
        return value

    @model_validator(mode="after")
    def _whole(self) -> TableConfig:
        if self.valid_from is not None and not self.key:
            raise ValueError("valid_from needs key: the columns that tell whose version a row is")
        needed = [*self.key, *([self.valid_from] if self.valid_from else [])]
        missing = [name for name in needed if self.columns and name not in self.columns]
        if missing:
            raise ValueError(f"columns lacks {missing[0]!r}, which key or valid_from names")
        return self

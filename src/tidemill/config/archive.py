"""``archive:``: what every archive says of its columns, and where the kinds of archives are found.

The sections themselves stand with their connectors. They are imported when a YAML or a manifest
names them.
"""

from __future__ import annotations

from pydantic import Field

from tidemill.config.kinds import Kinds
from tidemill.config.section import Section

ARCHIVES = Kinds(
    "tidemill.archives",
    {
        "iceberg": "tidemill.connectors.archives.iceberg:IcebergArchive",
        "parquet": "tidemill.connectors.archives.parquet:ParquetArchive",
        "delta": "tidemill.connectors.archives.delta:DeltaArchive",
    },
)


class ArchiveColumns(Section):
    """Which columns of an archive say when and where the log took a row."""

    type: str
    ingest_time: str = Field(
        description="The column with the time the log accepted the row: it orders the history."
    )
    partition: str | None = Field(None, description="The column with the log's partition.")
    offset: str | None = Field(None, description="The column with the offset in the partition.")
    region: str | None = Field(None, description="The column that --region selects by.")

    def as_table(self) -> TableArchive | None:
        """The archive, if it is a table of the catalog; None: the catalog does not know it.

        'tidemill archive run' follows a log into such a table, and only such a table can tell how
        far it follows its log.
        """
        return None


class TableArchive(ArchiveColumns):
    """An archive that is a table of the catalog."""

    table: str = Field(description="namespace.table in the catalog.")

    def as_table(self) -> TableArchive:
        """Itself."""
        return self

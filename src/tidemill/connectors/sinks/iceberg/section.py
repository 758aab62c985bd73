"""``type: iceberg``: an output table of the project's catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from tidemill.config.pins import SinkPin
from tidemill.config.places import table_key
from tidemill.config.sink import Place, SinkSection
from tidemill.errors import PlanError

if TYPE_CHECKING:
    from tidemill.connectors.sinks.contract import Sink, SinkRun


class IcebergSink(SinkSection):
    """An output table. `type: iceberg` may be left out."""

    type: Literal["iceberg"] = "iceberg"
    table: str = Field(description="namespace.table in the catalog; made if it is missing.")
    partition_by: Literal["hour", "day", "none"] = Field(
        "day", description="How the table is partitioned by its time."
    )

    is_readable: ClassVar[bool] = True

    @field_validator("table")
    @classmethod
    def _has_namespace(cls, value: str) -> str:
        if value.count(".") < 1 or not all(value.split(".")):
            example = f"marts.{value.strip('.') or 'output'}"
            raise ValueError(
                f"{value!r} has no namespace; write namespace.table, for example {example}"
            )
        return value

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    def writes(self, target: str) -> dict[Place, str]:
        """The table, and those of its late and dead rows."""
        names = (target, f"{target}__late", f"{target}__dead")
        return {("table", *table_key(name)): f"the table {name!r}" for name in names}

    def check_target(self, target: str) -> None:
        """A table has a namespace."""
        if not all(target.rpartition(".")):
            raise PlanError(f"--into {target} has no namespace", fix="write namespace.table")

    def pin(self, schema: str, target: str) -> SinkPin:
        """A table is known by its name alone; how it is partitioned is fixed too."""
        return table_pin(target, schema, self.time, self.key, partition_by=self.partition_by)

    @classmethod
    def open(cls, run: SinkRun, name: str, pin: SinkPin) -> Sink:
        """Driver: the table of a pin. The YAML is not asked again: the catalog has everything."""
        from tidemill.connectors.sinks.iceberg.table import IcebergTable

        return IcebergTable(run, pin)


def table_pin(
    table: str,
    schema: str,
    time: str | None = None,
    key: list[str] | tuple[str, ...] = (),
    *,
    partition_by: str = "none",
    region: str | None = None,
    order: tuple[str, ...] = (),
) -> SinkPin:
    """The pin of a table.

    ``region`` partitions it beside its time; the rows of a file stand in the ``order`` of columns.
    """
    own = {"partition_by": partition_by, "region": region, "order": list(order)}
    return SinkPin("iceberg", table, schema, time, tuple(key), table=table, own=own)

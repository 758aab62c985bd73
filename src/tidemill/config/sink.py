"""``sinks:``: where a pipeline's outputs go; each kind of sink stands in ``connectors/sinks``."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar

from pydantic import Field

from tidemill.config.expect import OutputExpect
from tidemill.config.kinds import Kinds
from tidemill.config.pins import SinkPin
from tidemill.config.section import Columns, Section

SINKS = Kinds(
    "tidemill.sinks",
    {
        "iceberg": "tidemill.connectors.sinks.iceberg.section:IcebergSink",
        "kafka": "tidemill.connectors.sinks.kafka.section:KafkaSink",
        "postgres": "tidemill.connectors.sinks.postgres.section:PostgresSink",
    },
    default="iceberg",
)
"""The kinds of sinks, by their ``type``."""


Place = tuple[str, ...]
"""A place to compare: what it is (``table``, ``topic``, …), and what tells it from others."""


class SinkSection(Section):
    """What every sink has in the YAML, and what planning asks of its kind.

    Nothing here opens a connection. The rest of the contract is in `connectors/sinks/contract.py`.
    """

    type: str
    time: str | None = Field(None, description="The output column the range [from, to) is about.")
    key: Columns = Field([], description="The columns that identify a row; used to compare.")
    expect: OutputExpect = Field(
        OutputExpect(), description="What must hold of the rows of this output."
    )

    noun: ClassVar[str] = "table"
    """What it writes, as people call it."""
    has_shadow: ClassVar[bool] = True
    """Whether a backfill writes beside the place that consumers look at, until it is published."""
    has_commit: ClassVar[bool] = True
    """Whether rows are seen with the batch's commit and not before; a log shows them at once."""
    is_readable: ClassVar[bool] = False
    """Whether a run's rows can be read back from it, so that ``expect:`` can look at them."""
    is_arranged: ClassVar[bool] = False
    """Whether Spark must see the rows before they are written, to bring them into an order."""

    @property
    @abstractmethod
    def target(self) -> str:
        """The name of what it writes, as the YAML says it."""

    def writes(self, target: str) -> dict[Place, str]:
        """The places that it writes under this name, each as people are told.

        They are compared with those of other sinks, and with those that the sources are read from.
        """
        return {(self.type, target): f"the {self.noun} {target!r}"}

    def check_target(self, target: str) -> None:
        """Raise PlanError unless ``--into`` may name this."""

    def check_output(self, output: str, schema: str, where: str) -> None:
        """Raise PlanError if the output (Spark's JSON) has a column that it cannot hold."""

    def risks(self, output: str) -> Iterable[str]:
        """What a plan warns of, each with the way out: where settings weaken a promise."""
        del output
        return ()

    def pin(self, schema: str, target: str) -> SinkPin:
        """The sink in a run's manifest, that writes the place of this name. Holds no secret."""
        place, own = f"{self.type}:{target}", {"target": target}
        return SinkPin(self.type, place, schema, self.time, tuple(self.key), own=own)


SinkConfig = Annotated[SinkSection, SINKS]
"""One output, by its ``type``."""

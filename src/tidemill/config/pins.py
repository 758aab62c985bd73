"""What sections of the YAML leave in a run's manifest. Loads no YAML machinery."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SinkPin:
    """One output as a run writes it, in the run's manifest. Holds no secret."""

    kind: str
    place: str  # where the rows go, as people are told; unique among places of all kinds
    schema: str  # of the output, Spark's JSON
    time: str | None = None
    key: tuple[str, ...] = ()
    table: str = ""  # the table of the catalog that it is, if it is one
    own: dict[str, Any] = field(default_factory=dict)  # what only the connector understands

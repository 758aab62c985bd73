"""What sections of the YAML leave in a run's manifest. Loads no YAML machinery."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidemill.jsonvalue import JsonValue


@dataclass(frozen=True)
class SinkPin(JsonValue):
    """One output as a run writes it, in the run's manifest. Holds no secret."""

    kind: str
    place: str  # where the rows go, as people are told; unique among places of all kinds
    schema: str  # of the output, Spark's JSON
    time: str | None = None
    key: tuple[str, ...] = ()
    table: str = ""  # the table of the catalog that it is, if it is one
    own: dict[str, Any] = field(default_factory=dict)  # what only the connector understands


class About(StrEnum):
    """What an expectation is about; the words are the keys of ``expect:``."""

    LATE = "late"
    DEAD = "dead"
    ROWS = "rows"
    NOT_NULL = "not_null"
    UNIQUE = "unique"
    WHERE = "where"


@dataclass(frozen=True)
class Check(JsonValue):
    """One expectation, in a run's manifest."""

    about: About
    expected: str  # a comparison, a filter, or names of columns
    output: str = ""  # empty: it is about the rows that the run reads
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As people read it: ``plays: unique show_id, window_start``."""
        of = f"{self.output}: " if self.output else ""
        return f"{of}{self.about} {self.expected}"

"""The options of ``format("tidemill")``: all that Spark's source process and executors are told.

Spark keeps options as a flat map of texts, in which upper and lower case count as one. They travel
in memory, from the driver through the JVM to its Python processes, and Spark writes them to no
file. What may hold a password has an option's name that Spark's own redaction knows (``secret``),
so that no plan or page shows it either.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SETTINGS = "secret.settings"
_TRANSFORM = "secret.transform"


@dataclass(frozen=True)
class SourceOptions:
    """One source of a run. Everything else about it stands in the run's folder."""

    run: Path  # the run's folder
    source: str
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)  # its properties
    log: Mapping[str, Any] = field(default_factory=dict, repr=False)  # see LogHome.settings
    transform: bytes | None = field(default=None, repr=False)
    """A pickled :class:`~tidemill.reading.transform.ReaderTransform`. A pickle is right here: it
    is code, for example a user's fold, and Spark pickles code to executors in the same way."""

    def to_spark(self) -> dict[str, str]:
        """As Spark takes them."""
        settings = {"catalog": dict(self.catalog), "log": dict(self.log)}
        found = {"run": str(self.run), "source": self.source, _SETTINGS: json.dumps(settings)}
        if self.transform is not None:
            found[_TRANSFORM] = base64.b64encode(self.transform).decode("ascii")
        return found

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> SourceOptions:
        """The inverse of :meth:`to_spark`."""
        transform = options.get(_TRANSFORM)
        return cls(
            run=Path(options["run"]),
            source=options["source"],
            **json.loads(options[_SETTINGS]),
            transform=None if transform is None else base64.b64decode(transform),
        )

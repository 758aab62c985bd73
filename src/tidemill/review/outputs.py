"""The outputs of a backfill, each with the place that its shadow stands beside."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.connectors.sinks.contract import SinkRun, open_sinks
from tidemill.connectors.sinks.replacing import Production, Replacement
from tidemill.errors import RunError
from tidemill.runfolder.compared import read_compared
from tidemill.runfolder.folder import RunFolder

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.compared import ComparedOutput


@dataclass(frozen=True)
class ReviewedOutput:
    """One output of a run, and production."""

    name: str
    production: Production
    span: tuple[int, int]
    compared: ComparedOutput | None  # the last comparison with production, if there was one

    def asked(
        self, run: str, folder: RunFolder, *, changed: bool = False, other_schema: bool = False
    ) -> Replacement:
        """What is asked of production."""
        known = self.compared
        return Replacement(
            run=run,
            output=self.name,
            span=self.span,
            by=whoami(),
            was_seen=known is not None,
            seen=None if known is None else known.snapshot,
            seen_shadow=None if known is None else known.shadow,
            changed=changed,
            other_schema=other_schema,
            journal=folder.rewritten(self.name),
        )


def open_outputs(
    loaded: LoadedConfig, catalog: Catalog, manifest: Manifest, folder: RunFolder
) -> list[ReviewedOutput]:
    """All outputs of a backfill; an error if one of them is not a shadow that can be published."""
    require_end(manifest)
    if manifest.instances is not None:
        raise RunError(
            f"the run {manifest.run} has rows of {len(manifest.instances.ids)} instances: "
            "production also has those of others, and a publish replaces a whole range of time",
            fix="read the shadow, or delete the rows of these instances from production and copy "
            "those of the shadow",
            run=manifest.run,
        )
    known = {each.output: each for each in read_compared(folder)}
    found = []
    for name, sink in open_sinks(SinkRun(loaded, catalog, manifest, folder.path)).items():
        production, compared = sink.production(manifest.run, name), known.get(name)
        if compared is not None and compared.place != production.place:
            compared = None  # it was compared with another table
        found.append(ReviewedOutput(name, production, manifest.times.output, compared))
    return found


def require_end(manifest: Manifest) -> None:
    """Refuse a live run: it has no shadow, whatever its state is."""
    if not manifest.times.ends:
        raise RunError(
            f"the run {manifest.run} is live: it writes into its tables directly",
            fix="publish a backfill: 'tidemill backfill PIPELINE --from … --to …' makes a shadow",
            run=manifest.run,
        )


def whoami() -> str:
    """Who publishes, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"

"""What limits a run now: its metrics, and what its folder says of it, looked at together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.planning.metrics.findings import Finding, RunFacts, find_troubles
from tidemill.runfolder.control import read_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.reports.status import read_status
from tidemill.runtime.reports.waiting import Reason

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry
    from tidemill.runtime.reports.results import RunResult

_ORDINARY = (Reason.LOG, Reason.RATE, Reason.PLANNED, Reason.STARTING, Reason.FIRST_BATCH)
"""Reasons to wait that are no trouble, or that metrics tell better."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and of how many batches."""

    run: str
    state: str
    batches: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """As ``diagnose --json`` prints it."""
        found = [finding.to_json() for finding in self.findings]
        return {"run": self.run, "state": self.state, "batches": self.batches, "findings": found}


def diagnose_run(loaded: LoadedConfig, registry: Registry, run: str | None) -> Diagnosis:
    """One run, by default the latest."""
    status = read_status(loaded, registry, run)
    metrics = registry.metrics(status.run)
    found = find_troubles(metrics, run_facts(loaded, status))
    return Diagnosis(status.run, str(status.state), len(metrics.batches), tuple(found))


def run_facts(loaded: LoadedConfig, status: RunResult) -> RunFacts:
    """What is known of a run beside its metrics."""
    folder = RunFolder.of(loaded.home, status.run)
    if not folder.has_manifest():
        return RunFacts()
    waiting, phase = status.waiting, status.phase
    is_trouble = waiting is not None and waiting.reason not in _ORDINARY
    return RunFacts(
        is_live=phase is not None and phase.name == "live",
        rate=read_control(folder.path).limit(folder.read_manifest().times.rate),
        waiting=waiting.sentence if waiting is not None and is_trouble else None,
        behinds={} if phase is None else {name: lag.behinds for name, lag in phase.lags.items()},
    )

"""The moment at which the run that upgrades another takes over, and the end of one that did not.

Until its first commit the new run has changed nothing that the old one needs: it has a folder, tags
and state of its own, and the old run keeps its name. The decision is a file in the old run's
folder (`runfolder/succession.py`); what follows from it in the registry is done again by whoever
finds it undone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.config.loader import LoadedConfig
from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.manifest import Manifest
from tidemill.planning.offsets import BatchOffsets
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, is_held
from tidemill.runfolder.succession import Decision, decide, decided, taken_by
from tidemill.runtime.registry import OVER, Registry, RunState
from tidemill.runtime.starts.naming import find_manifest
from tidemill.runtime.starts.starting import release


@dataclass
class Handover:
    """What the driver of a new run asks before it starts, and before it commits.

    Of a run that upgrades no other, nothing.
    """

    loaded: LoadedConfig
    registry: Registry
    manifest: Manifest
    is_done: bool = False

    @property
    def old(self) -> RunFolder:
        """The folder of the run that is upgraded."""
        return RunFolder.of(self.loaded.home, self.manifest.identity.origin.recovers)

    def require_open(self) -> None:
        """Refuse to drive a run that was given up; finish what a driver that died began."""
        if not self.manifest.identity.origin.upgrades:
            self.is_done = True
            return
        if not self.old.has_manifest() and self.registry.newest_batch(self.manifest.run):
            self.is_done = True  # the old run was forgotten since
            return
        found = decided(self.old, self.manifest.run)
        if found is Decision.GIVEN_UP:
            raise self._given_up()
        if found is Decision.TAKEN:
            self._settle()

    def before_commit(self, now: BatchOffsets) -> None:
        """Take over, if this batch may give rows that the old run has not given."""
        is_given = [cut.includes(now) for cut in self.manifest.outputs.discard.values()]
        if self.is_done or (is_given and all(is_given)):
            return
        if decide(self.old, self.manifest.run, Decision.TAKEN) is Decision.GIVEN_UP:
            raise self._given_up()
        self._settle()

    def _settle(self) -> None:
        """Let the registry and the archives know; the old run needs nothing any more."""
        run, old = self.manifest.run, self.manifest.identity.origin.recovers
        self.registry.hand_over(old, run, f"upgraded: {run} goes on")
        theirs = find_manifest(self.loaded.home, old)
        if theirs is not None:
            release(open_catalog(self.loaded), theirs)
        self.is_done = True

    def _given_up(self) -> RunError:
        run, old = self.manifest.run, self.manifest.identity.origin.recovers
        return RunError(
            f"the run {run} was to upgrade {old}, and was given up before its first commit",
            fix=f"'tidemill status {old}' shows the run that goes on; 'tidemill upgrade {old}' "
            "tries again",
        )


def find_successors(loaded: LoadedConfig, registry: Registry, run: str) -> list[Manifest]:
    """The runs that were to upgrade this one, and have not ended."""
    found, pipeline = [], registry.get(run).pipeline
    for record in registry.runs():
        if record.state in OVER or record.run == run or record.pipeline != pipeline:
            continue
        theirs = find_manifest(loaded.home, record.run)
        if (
            theirs is not None
            and theirs.identity.origin.upgrades
            and theirs.identity.origin.recovers == run
        ):
            found.append(theirs)
    return found


def give_up_successors(loaded: LoadedConfig, registry: Registry, manifest: Manifest) -> None:
    """Before the old run reads anything: no run that upgrades it may commit from now on.

    The caller holds the old run's lease. Refused if one has taken over, or is driven now.
    """
    if manifest.times.ends or not manifest.code.is_there:
        return
    old = RunFolder.of(loaded.home, manifest.run)
    require_own(old, registry)
    for successor in find_successors(loaded, registry, manifest.run):
        folder = RunFolder.of(loaded.home, successor.run)
        if is_held(folder.path):
            raise RunError(
                f"the run {manifest.run} is being upgraded by {successor.run}, which is driven now",
                fix=f"wait for it; or 'tidemill stop {successor.run}', then try again: the old "
                "run goes on",
            )
        with hold_lease(folder.path, successor.run):
            if decide(old, successor.run, Decision.GIVEN_UP) is Decision.GIVEN_UP:
                why = f"given up before its first commit: {manifest.run} goes on"
                release(open_catalog(loaded), successor)
                registry.set_state(successor.run, RunState.CANCELLED, why)
    require_own(old, registry)


def require_own(old: RunFolder, registry: Registry) -> None:
    """Refuse to drive a run that was upgraded."""
    run, successor = old.path.name, taken_by(old)
    if successor is not None:
        registry.hand_over(run, successor, f"upgraded: {successor} goes on")
        raise RunError(
            f"the run {run} was upgraded: {successor} goes on",
            fix=f"'tidemill resume {successor}' goes on with that one, if nothing drives it",
            run=successor,
        )

"""How far the live run of a pipeline is with each of its instances, from what the run has kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.planning.instances.listing import InstanceStatus
from tidemill.planning.instances.values import Instance, InstanceState
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.offset_log import committed_entry
from tidemill.runtime.registry import OVER
from tidemill.runtime.starts.naming import find_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tidemill.planning.manifest import Manifest
    from tidemill.runfolder.cohorts import Cohort
    from tidemill.runtime.registry import Registry

_WHOLE = 100.0


def follow_instances(
    home: Path, registry: Registry, pipeline: str, instances: Iterable[Instance]
) -> dict[str, InstanceStatus]:
    """The instances that the pipeline's live run knows, by id; none without such a run."""
    manifest = _find_live(home, registry, pipeline)
    if manifest is None or manifest.instances is None:
        return {}
    following = _Following(RunFolder.of(home, manifest.run), manifest, manifest.instances.id)
    told = ((str(each.id), following.status(each)) for each in instances)
    return {name: status for name, status in told if status is not None}


def _find_live(home: Path, registry: Registry, pipeline: str) -> Manifest | None:
    """The newest live run that has not ended, and that is nobody's child."""
    for record in reversed(registry.runs()):
        if record.pipeline != pipeline or record.state in OVER:
            continue
        found = find_manifest(home, record.run)
        if found and not found.times.ends and found.identity.origin.parent is None:
            return found
    return None


@dataclass
class _Following:
    folder: RunFolder
    manifest: Manifest
    column: str

    def __post_init__(self) -> None:
        assert self.manifest.instances is not None
        versions = DecidedVersions(self.folder.path, self.manifest.instances.argument)
        rows = versions.rows(versions.newest())
        self.live = {str(each) for each in rows.column(self.column).to_pylist()}
        cohorts = Cohorts(self.folder.path)
        self.caught_up = {
            name: cohort
            for cohort in cohorts.cohorts()
            if not cohorts.is_over(cohort.number)
            for name in cohort.ids
        }
        self.through = {
            name
            for cohort in cohorts.cohorts()
            if (ending := cohorts.ending(cohort.number)) is not None and ending.is_through
            for name in cohort.ids
        }
        self.watermark = self._watermark(self.folder)

    def status(self, instance: Instance) -> InstanceStatus | None:
        """One instance; None: the run does not know it yet."""
        name, settles = str(instance.id), self.manifest.times.needs.settles.values()
        if name in self.through:
            return InstanceStatus(instance, InstanceState.DONE, self.watermark)
        if name in self.caught_up:
            return self._catching_up(instance, self.caught_up[name])
        if name not in self.live:
            return None
        over = instance.end + max(settles, default=0)
        is_done = self.watermark is not None and self.watermark >= over
        state = InstanceState.DONE if is_done else InstanceState.LIVE
        return InstanceStatus(instance, state, self.watermark)

    def _catching_up(self, instance: Instance, cohort: Cohort) -> InstanceStatus:
        reached = self._watermark(RunFolder(self.folder.path.parent / cohort.child))
        percent = None
        if reached is not None and self.watermark is not None:
            part = (reached - cohort.start) / max(1, self.watermark - cohort.start)
            percent = round(_WHOLE * max(0.0, min(1.0, part)), 1)
        return InstanceStatus(instance, InstanceState.CATCHING_UP, reached, percent=percent)

    def _watermark(self, folder: RunFolder) -> int | None:
        entry = committed_entry(folder.checkpoint)
        if entry is None:
            return None
        return min(
            at - self.manifest.sources[name].times.lateness for name, at in entry.slowest().items()
        )

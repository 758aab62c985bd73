"""What a project offers to do with the state of a live run: export it, upgrade the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import LoadedConfig
from tidemill.errors import RunError, TidemillError
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease
from tidemill.runfolder.succession import taken_by
from tidemill.runtime.registry import RunState, open_registry
from tidemill.runtime.starts.carrying import export_state
from tidemill.runtime.starts.handover import give_up_successors
from tidemill.runtime.starts.upgrading import Upgrade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.planning.carrying import StatePoint
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.upgrade import UpgradePlan
    from tidemill.runtime.reports.results import RunResult


@dataclass(frozen=True)
class CarryDesk:
    """One run, by its id. ``resume`` drives a run that is written down."""

    loaded: LoadedConfig
    run: str
    resume: Callable[..., RunResult]

    def export(self, file: Path, batch: int | None = None) -> StatePoint:
        """Write the fold state of the run, and its place in the log, into one file.

        It is that after ``batch``, or after the last committed one. ``run(state=…)`` goes on there.
        """
        folder = RunFolder.of(self.loaded.home, self.run)
        return export_state(folder, folder.read_manifest(), file, batch)

    def plan(self, *, rebuild: bool = False, spark: SparkSession | None = None) -> UpgradePlan:
        """The dry run of :meth:`upgrade`: whether state is carried or made again, and why."""
        return Upgrade.of(self.loaded, self.run, rebuild, spark).plan()

    def prepare(self, *, rebuild: bool = False, spark: SparkSession | None = None) -> Manifest:
        """Stop the run, and write the one down that goes on with the code of now, for `resume`.

        Until the new run's first commit the old one is whole: who resumes it gives the new one up.
        """
        upgrade = Upgrade.of(self.loaded, self.run, rebuild, spark)
        plan = upgrade.plan()
        upgrade.require_change(plan.changes)
        upgrade.stop()
        try:
            return upgrade.prepare(plan)
        except TidemillError as error:
            raise RunError(
                f"{error.message}; nothing is changed, and the run {self.run} is stopped",
                where=error.where,
                fix=f"{error.fix}; 'tidemill resume {self.run}' goes on with the old code",
            ) from error

    def upgrade(
        self,
        *,
        rebuild: bool = False,
        on_start: Callable[[Manifest], None] = lambda manifest: None,
        spark: SparkSession | None = None,
        **driving: Any,
    ) -> RunResult:
        """Give the run new code and keep its state: a new run goes on exactly where it stopped.

        If the new run fails before its first commit it is given up, and the old run can go on.
        ``driving`` are ``until`` and ``on_progress`` of `Project.resume`.
        """
        manifest = self.prepare(rebuild=rebuild, spark=spark)
        try:
            on_start(manifest)
            return self.resume(manifest.run, spark=spark, **driving)
        except Exception as error:
            self._give_up(manifest, error)
            raise

    def _give_up(self, made: Manifest, error: Exception) -> None:
        """Let the old run go on, if the new one has not taken over."""
        folder, registry = RunFolder.of(self.loaded.home, self.run), open_registry(self.loaded.home)
        if taken_by(folder) is not None:
            return
        with hold_lease(folder.path, self.run):
            give_up_successors(self.loaded, registry, folder.read_manifest())
            registry.set_state(self.run, RunState.STOPPED)
        why = error.message if isinstance(error, TidemillError) else str(error)
        raise RunError(
            f"the new code did not reach its first commit: {why}",
            where=f"run {made.run}",
            fix=f"the run {self.run} is whole: correct the code and 'tidemill upgrade {self.run}' "
            f"again, or restore the old code and 'tidemill resume {self.run}'",
        ) from error

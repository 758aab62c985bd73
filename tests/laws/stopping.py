"""Stop a run after a batch, so that it can be started again in the same JVM."""

from typing import TYPE_CHECKING

from tidemill.project import Progress, Project
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_until(project: Project, run: str, spark: "SparkSession", batch: int) -> int:
    """Drive the run, stop it cleanly after a batch; returns the last batch it committed."""
    folder = RunFolder.of(project.loaded.home, run)

    def watch(progress: Progress) -> None:
        if progress.batch and progress.batch.batch >= batch:
            update_control(folder.path, cancelled=True)

    result = project.resume(run, on_progress=watch, spark=spark)
    if result.state is RunState.CANCELLED:
        update_control(folder.path, cancelled=False)
        project.registry.set_state(run, RunState.STOPPED)
    commits = (folder.checkpoint / "commits").glob("[0-9]*")
    return max(int(path.name) for path in commits)

"""Refuse to run if the code does something else than when the run was planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.planning.code.behaviour import (
    describe_difference,
    first_difference,
    is_same_plan,
)
from tidemill.planning.commands import start_again
from tidemill.runfolder.offset_log import has_log
from tidemill.runtime.code.analyst import analyse
from tidemill.runtime.code.binding import GivenParams
from tidemill.runtime.code.cache import forget
from tidemill.runtime.code.loading import load_pipeline
from tidemill.runtime.code.lookout import Seen, watching

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidemill.pipeline import Pipeline
    from tidemill.planning.code.analysis import PipelineFacts
    from tidemill.runtime.driving.frames import Work


def require_same(
    work: Work, spark: SparkSession, archives: dict[str, pa.Schema], *, is_fresh: bool = False
) -> tuple[Pipeline, PipelineFacts] | None:
    """Load the run's pipeline, and refuse it if its code does something else than was planned.

    Called at every start and resume, in the run's own session, before anything is read or made.
    An archive run has no code, so there is nothing to compare. A run that ``is_fresh`` has
    committed nothing yet: functions in its plan may have changed, as long as the plan is the same.
    """
    manifest = work.manifest
    if not manifest.code.is_there:
        return None
    with watching() as imported:
        given = GivenParams(work.loaded, manifest.pipeline, pinned=manifest.code.params)
        pipeline = load_pipeline(work.loaded, manifest.pipeline, given)
    seen = Seen()
    seen.add(imported)
    facts = analyse(
        spark,
        pipeline,
        {source: archives[source] for source in pipeline.streams if source in archives},
        {source: pin.times.event_time for source, pin in manifest.sources.items()},
        {source for source, pin in manifest.sources.items() if pin.rows.meta},
        tables={name: work.table(name)[0] for name in pipeline.tables},
        instances=work.instances(),
        seen=seen,
    )
    difference = first_difference(manifest.code.behaviour, facts.behaviour)
    is_mended = is_fresh and is_same_plan(manifest.code.behaviour, facts.behaviour)
    if difference is not None and not is_mended:
        told = describe_difference(*difference)
        raise _refusal(
            work, told if manifest.code.behaviour else "its plan does not say what it did"
        )
    return pipeline, facts


def _refusal(work: Work, what: str) -> RunError:
    """The error; if the run has not begun, its cached analysis was wrong and is removed, too."""
    run, name = work.manifest.run, work.manifest.pipeline
    if has_log(work.folder.checkpoint):
        return RunError(
            f"the code of {name!r} does something else since the run was planned: {what}",
            where=f"run {run}",
            fix="restore the code and the files and variables it reads; or start a new run: "
            f"{start_again(work.manifest)}; old and new rows must not be mixed",
        )
    forget(work.loaded.home, work.manifest.code.fingerprint)
    return RunError(
        f"the code of {name!r} does something else than its plan says: {what}",
        where=f"run {run}",
        fix="start again: the kept analysis was dropped, and the code will be looked at anew; "
        f"'tidemill cancel {run}' lets go of this run",
    )

"""Run a backfill again that failed or was cancelled: under a new id, with the same decisions.

The manifest of the run that ended holds all of them. They hold for the new run as long as what they
name is still there: the pinned snapshots, the reference tables, and code that does the same. Else
the same request is planned anew, and the reason is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import SinkRun
from tidemill.errors import PlanError, RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.jsonvalue import dump_json, load_json
from tidemill.planning.code.params import Written
from tidemill.planning.manifest import Manifest, Outputs
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.requests import request
from tidemill.runfolder.folder import RunFolder, new_run_id
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.code.binding import GivenParams
from tidemill.runtime.code.cache import recall
from tidemill.runtime.plans.planner import code_fingerprint, make_plan
from tidemill.runtime.registry import OVER, RunRecord, RunState, open_registry
from tidemill.runtime.reports.overview import true_state
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.guards import one_start_at_a_time, require_place
from tidemill.runtime.starts.starting import write_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.plan import RunPlan, RunRequest

_RENAMED = {"region": "regions", "param": "params", "instance": "instances"}
_RANGE = ("from", "to")


@dataclass(frozen=True)
class Retried:
    """A backfill that was prepared again."""

    manifest: Manifest
    of: str  # the run that ended
    replanned: str | None = None  # why its decisions could not be taken over


def prepare_again(
    loaded: LoadedConfig, run: str, spark: SparkSession | None = None, *, append: bool = False
) -> Retried:
    """Write down a new run like one that ended; it takes over the name, if that run has one.

    Nothing of the old run changes: its shadow, if it has one, stays until it is forgotten.
    """
    old = _ended(loaded, run)
    if old.identity.origin.retries is not None:
        raise RunError(
            f"the run {run} retries rows of {old.identity.origin.retries.run}, and may have "
            "written some already",
            fix=f"'tidemill resume {run}' goes on with it; 'tidemill dead retry' takes the rows "
            "that no run has taken",
        )
    asked = replace(request_of(old), append=append)
    why, plan = _changed_code(loaded, old, asked, spark)
    if why is None:
        made = under(old, new_run_id(datetime.now(UTC)))
        try:
            _write(loaded, made, asked, old.run)
            return Retried(made, old.run)
        except SourceError as error:
            why = f"what the run {old.run} had pinned is gone: {error.message}"
    plan = plan or make_plan(loaded, asked, datetime.now(UTC), spark)
    made = pipeline_manifest(loaded, plan, new_run_id(plan.created), local_cores())
    made = made.begun_as(old.identity.name, old.identity.asked)
    _write(loaded, made, asked, old.run)
    return Retried(made, old.run, why)


def _write(loaded: LoadedConfig, made: Manifest, asked: RunRequest, old: str) -> None:
    folder = RunFolder.of(loaded.home, made.run).path
    with one_start_at_a_time(loaded.home):
        require_place(SinkRun(loaded, open_catalog(loaded), made, folder), asked)
        write_run(loaded, made, old)


def _ended(loaded: LoadedConfig, run: str) -> Manifest:
    """The manifest of a backfill that failed or was cancelled, and that nobody drives."""
    record = true_state(loaded.home, open_registry(loaded.home).get(run))
    folder = RunFolder.of(loaded.home, record.run)
    is_driven = is_held(folder.path) or is_watched(folder.path)
    if record.mode != "backfill":
        raise RunError(
            f"the run {record.run} is no backfill ({record.mode}): it is not begun again",
            fix=_for_live(record, is_driven),
        )
    if is_driven:
        raise RunError(
            f"the run {record.run} is {record.state}: it goes on",
            fix=f"'tidemill wait {record.run}', or 'tidemill cancel {record.run}' first",
        )
    if record.state not in (RunState.FAILED, RunState.CANCELLED):
        again = f"'tidemill resume {record.run}' goes on with it"
        is_done = record.state is RunState.FINISHED
        raise RunError(
            f"the run {record.run} is {record.state}: only one that failed or was cancelled is "
            "begun again",
            fix="'tidemill backfill' computes its range once more" if is_done else again,
        )
    return folder.read_manifest()


def _for_live(record: RunRecord, is_driven: bool) -> str:
    """What a user can do with a live run instead."""
    if record.state in OVER:
        return f"'tidemill run {record.pipeline}' starts a new one"
    if is_driven:
        return f"it is {record.state} and goes on: 'tidemill status {record.run}' shows it"
    return f"'tidemill resume {record.run}' goes on where it was"


def request_of(manifest: Manifest) -> RunRequest:
    """The request of a backfill, from the options with which it was begun."""
    asked = dict(manifest.identity.asked)
    try:
        is_open = "instance" in asked  # their periods are the range
        start, end = (asked.pop(key, None) if is_open else asked.pop(key) for key in _RANGE)
    except KeyError:
        raise PlanError(
            f"the run {manifest.run} does not say with which options it was begun",
            fix="'tidemill backfill' with the same options begins a new one",
        ) from None
    options: dict[str, Any] = {
        _RENAMED.get(key, key.replace("-", "_")): value for key, value in asked.items()
    }
    if "params" in options:
        pairs = (text.partition("=") for text in options["params"])
        options["params"] = {name: Written(value) for name, _, value in pairs}
    return request(manifest.pipeline, start, end, **options)


def _changed_code(
    loaded: LoadedConfig, old: Manifest, asked: RunRequest, spark: SparkSession | None
) -> tuple[str | None, RunPlan | None]:
    """Why the code is not that of the run; and the plan that had to be made to see it."""
    given = GivenParams(loaded, asked.pipeline, dict(asked.params))
    text = code_fingerprint(loaded, asked.pipeline, given)
    if text == old.code.fingerprint and recall(loaded.home, text) is not None:
        return None, None
    plan = make_plan(loaded, asked, datetime.now(UTC), spark)
    if plan.facts.behaviour == old.code.behaviour:
        return None, None
    return f"the code of {asked.pipeline} does something else than in the run {old.run}", plan


def under(old: Manifest, run: str) -> Manifest:
    """The same decisions for a run with another id, whose shadows have its own."""
    outputs = load_json(Outputs, dump_json(old.outputs).replace(old.run, run))
    return replace(old, identity=replace(old.identity, run=run), outputs=outputs)

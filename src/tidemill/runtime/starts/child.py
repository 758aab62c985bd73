"""Write down the child run that catches a cohort of instances up for a live run.

The live run has decided the child's id, its instances and where they begin, and nothing else. So
whoever finds the child missing, or half written down, writes it down again; what an earlier attempt
has left is removed, because it was never driven.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemill.connectors.sinks.contract import SinkRun
from tidemill.errors import RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.code.params import Written
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.requests import run_request
from tidemill.runfolder.cohorts import Cohort, Cohorts
from tidemill.runfolder.decided_versions import DecidedVersions
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import open_registry
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.guards import one_start_at_a_time, require_place
from tidemill.runtime.starts.starting import complete_run, write_run
from tidemill.types import from_micros

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.plan import RunRequest

_OPTIONS = {"region": "regions", "where": "where", "into": "into"}
"""Of a live run, what its child is begun with, too: by the names of the command line."""


def prepare_child(loaded: LoadedConfig, run: str, number: int) -> Manifest:
    """The manifest of the child of a cohort; it is written down if it is not yet."""
    parent = RunFolder.of(loaded.home, run).read_manifest()
    cohort = _cohort(loaded, run, number)
    folder = RunFolder.of(loaded.home, cohort.child)
    with one_start_at_a_time(loaded.home):
        if _is_known(loaded, cohort.child) and folder.has_manifest():
            manifest = folder.read_manifest()
            complete_run(loaded, manifest, folder)
            return manifest
    asked = _request(parent, cohort)
    plan = make_plan(loaded, asked, datetime.now(UTC))
    made = pipeline_manifest(loaded, plan, cohort.child, local_cores())
    _require_same_code(made, parent)
    made = made.as_child(parent, number, cohort.ids)
    with one_start_at_a_time(loaded.home):
        shutil.rmtree(folder.path, ignore_errors=True)
        require_place(SinkRun(loaded, open_catalog(loaded), made, folder.path), asked)
        _keep_rows(loaded, parent, cohort)
        write_run(loaded, made)
    return made


def _cohort(loaded: LoadedConfig, run: str, number: int) -> Cohort:
    cohorts = Cohorts(RunFolder.of(loaded.home, run).path)
    for cohort in cohorts.cohorts():
        if cohort.number == number:
            return cohort
    raise RunError(f"the run {run} has no cohort {number} of instances")


def _is_known(loaded: LoadedConfig, run: str) -> bool:
    with suppress(RunError):
        return open_registry(loaded.home).get(run).run == run
    return False


def _request(parent: Manifest, cohort: Cohort) -> RunRequest:
    asked = parent.identity.asked
    options: dict[str, Any] = {
        name: asked[flag] for flag, name in _OPTIONS.items() if flag in asked
    }
    pairs = [text.partition("=") for text in asked.get("param", [])]
    if pairs:
        options["params"] = {name: Written(value) for name, _, value in pairs}
    trigger = max(pin.live.trigger for pin in parent.sources.values() if pin.live is not None)
    options["trigger"] = from_micros(trigger) - from_micros(0)
    return run_request(parent.pipeline, from_micros(cohort.start), append=True, **options)


def _require_same_code(made: Manifest, parent: Manifest) -> None:
    if made.code.behaviour != parent.code.behaviour or made.sources.keys() != parent.sources.keys():
        raise RunError(
            f"the code of {parent.pipeline} does something else than in the run {parent.run}: "
            "what a child of it computed could not be united with it",
            where=f"run {made.run}",
            fix=f"restore the code, or 'tidemill upgrade {parent.run}'",
        )


def _keep_rows(loaded: LoadedConfig, parent: Manifest, cohort: Cohort) -> None:
    """The child's first batch sees exactly the instances of the cohort."""
    theirs = DecidedVersions(RunFolder.of(loaded.home, parent.run).path, cohort.argument)
    own = DecidedVersions(RunFolder.of(loaded.home, cohort.child).path, cohort.argument)
    version = replace(theirs.newest(), digest=cohort.rows, read=cohort.created)
    own.decide(0, own.keep(theirs.rows(version), version.pin, cohort.created))

"""Upgrade a live run: new code, state kept, and no gap and no row twice where the codes meet.

The old run ends after a batch. Where fold state fits the new code, the new run gets this state and
the place in the log; else its state is made again from the archive, and what it gives up to the old
run's end is discarded, as in a recovery. Who of the two goes on is decided by the new run's first
commit (`runtime/starts/handover.py`).
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.sinks.contract import SinkRun, open_places
from tidemill.errors import PlanError, RequestError, RunError, SourceError
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.carrying import StatePoint, begin_with, misfits
from tidemill.planning.code.params import Written
from tidemill.planning.cuts import Cut
from tidemill.planning.manifest import Manifest
from tidemill.planning.manifesting import pipeline_manifest
from tidemill.planning.requests import run_request
from tidemill.planning.upgrade import UpgradePlan, Way, find_changes
from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.folder import SPARK_STATE, RunFolder, new_run_id
from tidemill.runfolder.lease import hold_lease, is_held, is_watched
from tidemill.runfolder.offset_log import (
    committed_batches,
    committed_entry,
    is_between_batches,
    read_batch,
)
from tidemill.runfolder.succession import taken_by
from tidemill.runtime.plans.planner import make_plan
from tidemill.runtime.registry import OVER, Registry, open_registry
from tidemill.runtime.spark.settings import local_cores
from tidemill.runtime.starts.carrying import KeptState, secure_log, write_carried
from tidemill.runtime.starts.guards import one_start_at_a_time, require_only_live_run
from tidemill.runtime.starts.handover import give_up_successors
from tidemill.runtime.starts.recovery import Lost, Takeover, output_start, recover
from tidemill.runtime.starts.standing import stamp_of
from tidemill.runtime.starts.starting import write_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.planning.plan import RunPlan

PATIENCE = 1_200.0
"""Seconds to wait for the old run's driver, which may finish a long batch."""
_ARCHIVE = 60.0
"""Seconds to wait for an archive that does not reach the old run's end yet."""
_SINGULAR = {"region": "regions"}
_NOT_REPEATED = ("from", "to", "start", "emit-from", "state")


@dataclass(frozen=True)
class Upgrade:
    """One upgrade of one live run, from its plan to a new run that may be driven."""

    loaded: LoadedConfig
    old: Manifest
    rebuild: bool = False
    spark: SparkSession | None = None

    @classmethod
    def of(
        cls, loaded: LoadedConfig, run: str, rebuild: bool, spark: SparkSession | None
    ) -> Upgrade:
        """The upgrade of a run by its id or name; refused if the run is not to go on."""
        registry = open_registry(loaded.home)
        record = registry.get(run)
        manifest = RunFolder.of(loaded.home, record.run).read_manifest()
        if manifest.times.ends or not manifest.code.is_there:
            what = "a backfill" if manifest.times.ends else "an archive run, which has no code"
            raise RequestError(
                f"the run {record.run} is {what}: only live runs of a pipeline are upgraded",
                fix="start a backfill again: a new one has the new code",
            )
        successor = taken_by(RunFolder.of(loaded.home, record.run))
        if successor is not None:
            registry.hand_over(record.run, successor, f"upgraded: {successor} goes on")
            raise RequestError(
                f"the run {record.run} was upgraded already: {successor} goes on",
                fix=f"'tidemill resume {successor}', or upgrade that one",
                run=successor,
            )
        if record.state in OVER:
            raise RequestError(
                f"the run {record.run} is {record.state}: it does not go on",
                fix="start a new run",
            )
        return cls(loaded, manifest, rebuild, spark)

    @property
    def folder(self) -> RunFolder:
        """The old run's folder."""
        return RunFolder.of(self.loaded.home, self.old.run)

    @property
    def registry(self) -> Registry:
        """The project's runs."""
        return open_registry(self.loaded.home)

    def plan(self) -> UpgradePlan:
        """What the upgrade would do, with the old run as it stands now. Changes nothing."""
        plan = self._planned(None)
        draft = self._draft(plan)
        if not self._is_live() and not find_changes(self.old, draft):
            raise self._unchanged()  # an upgrade that died after it took over: this run goes on
        if not draft.code.folds and not plan.facts.natives:
            point = self._point(folds=False)
            found = misfits(point, draft)
            way = Way.REBUILT if found else Way.STATELESS
            return UpgradePlan(self.old, draft, way, point, tuple(found))
        point = self._point(folds=not plan.facts.natives)
        found = misfits(point, draft, plan.facts.natives)
        way = Way.REBUILT if found or self.rebuild else Way.CARRIED
        if way is Way.REBUILT:
            self._planned(datetime.now(UTC))  # what history cannot be read is refused now
        return UpgradePlan(self.old, draft, way, point, tuple(found), self.rebuild and not found)

    def require_change(self, changes: list[str]) -> None:
        """Refuse an upgrade to what the run has already."""
        if not changes and not self.rebuild:
            raise self._unchanged("; --rebuild makes its state again from the archive")

    def _unchanged(self, more: str = "") -> RequestError:
        return RequestError(
            f"the run {self.old.run} has this code and these settings already",
            fix=f"'tidemill resume {self.old.run}' goes on with it{more}",
        )

    def stop(self) -> None:
        """Let the old run end after its running batch, and wait for it."""
        path = self.folder.path
        if is_watched(path):
            raise RunError(
                f"the run {self.old.run} has a supervisor, which would start it again",
                fix=f"'tidemill stop {self.old.run}' ends both; then upgrade it, with --supervise",
            )
        deadline = time.monotonic() + PATIENCE
        while is_held(path):
            if not read_control(path).stopping:
                update_control(path, stopping=True, upgrading=True)
            if time.monotonic() > deadline:
                raise RunError(
                    f"the run {self.old.run} was told to stop and has not ended",
                    fix=f"'tidemill status {self.old.run}' says what it does; then upgrade again",
                )
            time.sleep(0.2)

    def prepare(self, plan: UpgradePlan) -> Manifest:
        """Write the new run down; the old one must have stopped. It is whole until this commits."""
        with one_start_at_a_time(self.loaded.home), hold_lease(self.folder.path, self.old.run):
            give_up_successors(self.loaded, self.registry, self.old)
            self._require_settled()
            if plan.way is Way.REBUILT:
                made = self._awaited()
                write_run(self.loaded, made)
                return made
            kept = KeptState(self.folder, self.old)
            point = kept.point() if plan.way is Way.CARRIED else kept.point(folds=False)
            made = self._following(begin_with(plan.new, point))
            self._refuse_misfits(point, made)
            secure_log(self.loaded, made)
            require_only_live_run(made, self.loaded.home, self.old.run)
            self._write(made, kept, point)
            return made

    def _write(self, made: Manifest, kept: KeptState, point: StatePoint) -> None:
        """The state first: a run that the registry knows can be driven."""
        folder = RunFolder.of(self.loaded.home, made.run)
        try:
            if made.identity.origin.carried is not None:
                write_carried(folder, made, point, partial(kept.rows, batch=point.batch))
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        write_run(self.loaded, made)

    def _refuse_misfits(self, point: StatePoint, made: Manifest) -> None:
        found = misfits(point, made)
        if found:
            raise PlanError(
                "the state does not fit: " + "; ".join(map(str, found)),
                where=f"run {self.old.run}",
                fix="upgrade again with --rebuild",
            )

    def _following(self, made: Manifest) -> Manifest:
        """The manifest as that of a run that goes on for the old one, when it has committed."""
        takeover = Takeover(self.loaded.home, self.registry, made.pipeline, self.old.run, True)
        made = takeover.inherit(made, open_catalog(self.loaded))
        origin = replace(made.identity.origin, recovers=self.old.run, upgrades=True)
        return replace(made, identity=replace(made.identity, origin=origin))

    def _awaited(self) -> Manifest:
        """The same, once the archive reaches as far as the old run has read; it may lag a bit."""
        deadline = time.monotonic() + _ARCHIVE
        while True:
            try:
                return self._rebuilt()
            except SourceError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def _rebuilt(self) -> Manifest:
        """A run whose state is made from the archive, and that discards what the old one gave."""
        first = self._planned(datetime.now(UTC))
        draft = self._draft(first)
        folder = RunFolder.of(self.loaded.home, draft.run).path
        places = open_places(SinkRun(self.loaded, open_catalog(self.loaded), draft, folder))
        for name, pin in draft.outputs.sinks.items():
            if not places[pin.place].keeps_stamps:
                raise PlanError(
                    f"the state must be made again, and the output {name!r} goes to {pin.place}, "
                    "from which nothing can be held back",
                    where=f"pipeline {draft.pipeline}",
                    fix="keep the state's shape, so that it is carried; or start a new run with "
                    "--from TIME --emit-from TIME",
                )
        require_only_live_run(draft, self.loaded.home, self.old.run)
        lost = self._end(draft, list(places))
        final = self._planned(output_start(lost, first))
        return self._following(recover(replace_run(self._draft(final), draft.run), lost))

    def _end(self, draft: Manifest, places: list[str]) -> Lost:
        """Where the old run ended, as a recovery knows it: every place has all before it.

        Code without operators of Spark's own has given what the frontiers allow, whatever Spark's
        watermark was.
        """
        batch = committed_batches(self.folder.checkpoint)[-1]
        now = read_batch(self.folder.checkpoint, batch)
        assert now is not None
        is_native = (self.folder.checkpoint / SPARK_STATE).exists()
        watermark = now.watermark if is_native else draft.delays.watermark(now.slowest())
        cut = Cut(now.slowest(), watermark)
        stamp = stamp_of(self.old.run, batch, None, now)
        return Lost(self.old.run, dict.fromkeys(places, cut), stamp)

    def _require_settled(self) -> None:
        """The old run must stand between two batches, and be through with its own beginning."""
        run, checkpoint = self.old.run, self.folder.checkpoint
        if read_control(self.folder.path).steps_done < len(self.old.times.steps):
            raise RunError(
                f"the run {run} has not caught up yet with the run that it goes on for",
                fix=f"'tidemill resume {run}', and upgrade it when it is live",
            )
        if not is_between_batches(checkpoint) and self._has_begun_rows():
            raise RunError(
                f"the run {run} died while it committed a batch: some tables have it",
                fix=f"'tidemill resume {run} --for 1s' with the old code finishes it; or 'tidemill "
                f"run {self.old.pipeline} --recover-from-archive {run} --changed-code'",
            )

    def _has_begun_rows(self) -> bool:
        """Whether any place has, or may have, rows of the batch that was begun last."""
        committed = committed_batches(self.folder.checkpoint)
        last = committed[-1] if committed else -1
        folder, catalog = self.folder.path, open_catalog(self.loaded)
        places = open_places(SinkRun(self.loaded, catalog, self.old, folder))
        stamps = [sink.stamps().get(self.old.run) for sink in places.values()]
        is_ahead = any(found is not None and found.stamp.batch > last for found in stamps)
        return is_ahead or not all(sink.keeps_stamps for sink in places.values())

    def _is_live(self) -> bool:
        """Whether the old run is through with history: only then it has state to go on with."""
        entry = committed_entry(self.folder.checkpoint)
        return entry is not None and all(end.is_live for end in entry.ends.values())

    def _point(self, *, folds: bool = True) -> StatePoint:
        return KeptState(self.folder, self.old).point(folds=folds)

    def _planned(self, start: datetime | None) -> RunPlan:
        options = dict(asked_options(self.old.identity.asked))
        asked = run_request(self.old.pipeline, start, **options)
        return make_plan(self.loaded, asked, datetime.now(UTC), self.spark)

    def _draft(self, plan: RunPlan) -> Manifest:
        return pipeline_manifest(self.loaded, plan, new_run_id(plan.created), local_cores())


def asked_options(asked: dict[str, Any]) -> dict[str, Any]:
    """The options a run was begun with, for another request; not where it began."""
    found: dict[str, Any] = {}
    for key, value in asked.items():
        if key in _NOT_REPEATED:
            continue
        if key == "param":
            pairs = (text.partition("=") for text in value)
            found["params"] = {name: Written(written) for name, _, written in pairs}
            continue
        found[_SINGULAR.get(key, key.replace("-", "_"))] = value
    return found


def replace_run(manifest: Manifest, run: str) -> Manifest:
    """The manifest under another run's id."""
    return replace(manifest, identity=replace(manifest.identity, run=run))

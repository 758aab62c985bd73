"""Forget runs: their tags, their own tables, their folder, and last their entry in the registry.

In this order a run that was half forgotten, because the process was killed, is still listed, and
forgetting it once more does the rest. Each step may be done twice.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.config.loader import LoadedConfig
from tidemill.errors import RequestError, RunError, nearest
from tidemill.iceberg.catalog import open_catalog
from tidemill.planning.requests import Length
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, is_held, is_watched
from tidemill.runtime.ends.owned import Places, find_places, find_tags, remove_tags
from tidemill.runtime.registry import OVER, Registry, RunRecord, RunState, open_registry
from tidemill.runtime.starts.guards import one_start_at_a_time
from tidemill.types import parse_duration

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True)
class Forgotten:
    """What goes with a run, or went, and which of its tables stay, with the reason."""

    run: str
    name: str | None
    pipeline: str
    state: RunState
    tables: tuple[str, ...]
    tags: tuple[str, ...]  # archives that have a tag of the run
    folder: Path | None  # None: it is gone already
    stay: dict[str, str]

    @property
    def could_resume(self) -> bool:
        """Whether the run could still go on."""
        return self.state not in OVER and self.folder is not None

    def to_json(self) -> dict[str, Any]:
        """As ``forget --json`` prints it."""
        return {
            "run": self.run,
            "name": self.name,
            "pipeline": self.pipeline,
            "state": str(self.state),
            "tables": list(self.tables),
            "tags": list(self.tags),
            "folder": None if self.folder is None else str(self.folder),
            "stay": self.stay,
        }


def choose_runs(
    records: Iterable[RunRecord],
    now: datetime,
    older_than: timedelta | None = None,
    states: Collection[str] = (),
) -> list[RunRecord]:
    """The runs that ended so long ago, in one of these states; never one that runs or pauses.

    Live and archive runs that could be resumed are chosen only if ``states`` name their state.
    """
    for state in states:
        if state not in tuple(RunState):
            raise RequestError(
                f"there is no state {state!r}", fix=nearest(state, [str(each) for each in RunState])
            )
    found = []
    for record in records:
        if record.state in (RunState.RUNNING, RunState.PAUSED):
            continue
        is_safe = record.state in OVER or record.mode == "backfill"
        if record.state not in states if states else not is_safe:
            continue
        ended = datetime.fromisoformat(record.finished or record.created)
        if older_than is None or now - ended >= older_than:
            found.append(record)
    return found


def forget_runs(
    loaded: LoadedConfig,
    records: Sequence[RunRecord],
    runs: Collection[str] = (),
    *,
    older_than: Length | None = None,
    states: Collection[str] = (),
    dry_run: bool = False,
) -> list[Forgotten]:
    """Forget the named runs, or those of all ``records`` that are chosen by age and state.

    Nothing is done before it is known that all of them may be forgotten.
    """
    if bool(runs) is (older_than is not None or bool(states)):
        raise RequestError(
            "either runs are named, or they are chosen by their age or state",
            fix="'tidemill forget RUN', or --older-than 30d, or --state finished",
        )
    named = {open_registry(loaded.home).get(run).run for run in runs}
    length = None if older_than is None else parse_duration(older_than)
    chosen = [record for record in records if record.run in named]
    if not runs:
        chosen = choose_runs(records, datetime.now(UTC), length, states)
    forgetter = Forgetter(loaded)
    told = forgetter.look(chosen)
    return told if dry_run else list(forgetter.forget(chosen))


@dataclass(frozen=True)
class Forgetter:
    """Forgets runs of one project."""

    loaded: LoadedConfig

    def look(self, records: Iterable[RunRecord]) -> list[Forgotten]:
        """What would go with each run. Refuses runs that are driven; changes nothing."""
        found = list(records)
        for record in found:
            _require_idle(self._folder(record.run).path, record.run)
        catalog = open_catalog(self.loaded)
        return [
            self._told(catalog, record, find_places(self.loaded, catalog, record))
            for record in found
        ]

    def _told(self, catalog: Catalog, record: RunRecord, places: Places) -> Forgotten:
        folder = self._folder(record.run).path
        return Forgotten(
            run=record.run,
            name=record.name,
            pipeline=record.pipeline,
            state=record.state,
            tables=tuple(sorted(places.own)),
            tags=tuple(find_tags(self.loaded, catalog, record.run)),
            folder=folder if folder.exists() else None,
            stay=places.stay,
        )

    def forget(self, records: Iterable[RunRecord]) -> Iterator[Forgotten]:
        """Forget the runs, one after the other; yields each when it is gone."""
        for record in records:
            with one_start_at_a_time(self.loaded.home), self._held(record.run):
                catalog = open_catalog(self.loaded)
                places = find_places(self.loaded, catalog, record)
                told = self._told(catalog, record, places)
                remove_tags(self.loaded, catalog, record.run)
                for sink in places.own.values():
                    sink.drop()
                self._remove_folder(record.run)
                self._registry.remove(record.run)
            yield told

    @property
    def _registry(self) -> Registry:
        return open_registry(self.loaded.home)

    def _folder(self, run: str) -> RunFolder:
        return RunFolder.of(self.loaded.home, run)

    def _held(self, run: str) -> contextlib.AbstractContextManager[object]:
        """Hold the run, so that nobody resumes it meanwhile."""
        path = self._folder(run).path
        _require_idle(path, run)
        return hold_lease(path, run) if path.is_dir() else contextlib.nullcontext()

    def _remove_folder(self, run: str) -> None:
        """Delete the run's folder, which lies directly below the project's; no link is followed."""
        path = self._folder(run).path
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)


def _require_idle(folder: Path, run: str) -> None:
    if is_held(folder) or is_watched(folder):
        raise RunError(
            f"the run {run} is running",
            fix=f"'tidemill stop {run}' or 'tidemill cancel {run}' first",
            run=run,
        )

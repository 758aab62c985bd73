"""What must be true of tables and other runs before a new run may begin.

Names are compared when the YAML is loaded and planned; here it is what the catalog and the registry
say. All of it is metadata, except where files only straddle a range: then one column is read.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.connectors.logs.contract import live_home
from tidemill.connectors.sinks.contract import Sink, SinkRun, open_places
from tidemill.connectors.sinks.iceberg.table import require_outside
from tidemill.errors import PlanError, RunError
from tidemill.planning.carrying import StatePoint
from tidemill.planning.manifest import Manifest
from tidemill.planning.plan import Beginning, RunRequest
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.registry import OVER, RunRecord, RunState, open_registry
from tidemill.runtime.starts.naming import REPEATABLE, find_manifest
from tidemill.types import FOREVER_MICROS, TimeRange, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig

_SHOWN = 3


@contextmanager
def one_start_at_a_time(home: Path) -> Iterator[None]:
    """Hold the project while a run is checked and written down: two starts see each other."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / "start.lock").open("a")
    except OSError as error:
        raise not_written(error, home) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def not_written(error: OSError, folder: Path) -> RunError:
    """The error of a run that the disk does not take."""
    return RunError(
        f"the run cannot be written: {error.strerror or error}",
        where=str(error.filename or folder),
        fix="free space or give write permission, or set home: in the YAML",
    )


def require_place(run: SinkRun, request: RunRequest) -> None:
    """The run may write where its manifest says; otherwise an error that says why not."""
    manifest, home = run.manifest, run.loaded.home
    if request.live is not None and manifest.instances is not None:
        require_meetings(run.loaded, manifest)
    if request.live is not None and not request.append:
        require_only_live_run(manifest, home)
    warehouse = str(run.catalog.properties.get("warehouse", ""))
    if warehouse:
        require_outside(warehouse, "tables that the run makes", manifest.sources)
    if request.live is None and request.into is None:
        return  # shadows are new tables
    places = open_places(run)
    for sink in places.values():
        sink.require_apart(manifest.sources)
    if request.append or request.live is Beginning.LATEST:
        return
    span = _span(manifest, request)
    for pin in manifest.outputs.sinks.values():
        _require_no_rows(places[pin.place], pin.time, span, home)
    aside = max(manifest.times.output[0], manifest.times.boundaries[0]), manifest.times.output[1]
    for name in filter(None, (manifest.outputs.late_table, manifest.outputs.dead_table)):
        _require_no_rows(places[name], "ingest_time", aside, home)


def _span(manifest: Manifest, request: RunRequest) -> tuple[int, int]:
    """The sink's times that the run may write; from a log's first row on, as old as late allows."""
    if request.live is not Beginning.EARLIEST:
        return manifest.times.output
    pins = manifest.sources.values()
    first = min(pin.phase.seam for pin in pins if pin.phase is not None)
    return max(
        manifest.times.output[0], first - max(pin.times.lateness for pin in pins)
    ), manifest.times.output[1]


def _require_no_rows(sink: Sink, time: str | None, span: tuple[int, int], home: Path) -> None:
    """Rows that are there would be there twice."""
    rows, name = sink.rows_in(span), sink.place
    if not rows:
        return
    wrote = _writers(sink, open_registry(home).runs())
    by = f"; it was written by {wrote}" if wrote else ""
    times = f" with {time} in {_shown(span)}" if time is not None else ""
    raise PlanError(
        f"the table {name!r} has rows{times} already (up to {rows:,}){by}: the run would write "
        "them again",
        where=f"table {name}",
        fix="go on with the run that wrote them, 'tidemill resume RUN'; or write elsewhere, "
        "--into TABLE; or delete those rows first; --append writes beside them all the same",
        rows=rows,
    )


def _writers(sink: Sink, runs: Iterable[RunRecord]) -> str:
    """The project's runs that the place has commits of, the newest first."""
    told = sink.stamps()
    stamped = [run for run in runs if run.run in told]
    shown = [f"{run.run} ({run.mode}, {run.state})" for run in reversed(stamped[-_SHOWN:])]
    more = len(stamped) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _shown(span: tuple[int, int]) -> str:
    try:
        return str(TimeRange(from_micros(span[0]), from_micros(span[1])))
    except (OverflowError, ValueError):
        return f"[{show_instant(from_micros(span[0]))}, …)"


def _goes_on(home: Path, run: str) -> str:
    """What goes on with a run: the driver that it has, or one that the user starts."""
    path = RunFolder.of(home, run).path
    if is_held(path) or is_watched(path):
        return f"it is driven now, and 'tidemill status {run}' shows it"
    return f"'tidemill resume {run}' goes on with it"


def require_only_live_run(manifest: Manifest, home: Path, besides: str | None = None) -> None:
    """Two live runs of a pipeline into one place would write every row twice.

    ``besides`` is the run that the new one goes on for.
    """
    places = {sink.place for sink in manifest.outputs.sinks.values()}
    for record in open_registry(home).runs():
        if record.pipeline != manifest.pipeline or record.state in OVER:
            continue
        if record.run in (besides, manifest.run):
            continue
        other = find_manifest(home, record.run)
        if other is None:
            _require_never_begun(record)
        if other is None or other.times.ends or other.identity.origin.parent is not None:
            continue  # a child is its parent's affair
        shared = places & {sink.place for sink in other.outputs.sinks.values()}
        if shared:
            raise PlanError(
                f"the live run {record.run} of this pipeline writes {sorted(shared)[0]} and is "
                f"{record.state}: a second one would write the same rows again",
                where=f"pipeline {manifest.pipeline}",
                fix=f"{_goes_on(home, record.run)}; 'tidemill cancel {record.run}' ends it for "
                "good, then start anew; --append runs both",
                run=record.run,
            )


def require_not_beyond(run: SinkRun, point: StatePoint) -> None:
    """Refuse places with rows of what comes after the state's end: they would be there twice.

    The run that the state is of went on after it was exported, or another one has begun with it.
    """
    home, pipelines = run.loaded.home, (point.pipeline, run.manifest.pipeline)
    for pin in run.manifest.outputs.sinks.values():
        sink = open_places(run)[pin.place]
        for writer, last in sink.stamps().items() if sink.keeps_stamps else ():
            manifest = find_manifest(home, writer)
            if manifest is not None and (manifest.times.ends or manifest.pipeline not in pipelines):
                continue
            reached = last.stamp.frontiers
            if any(
                source.frontier < reached.get(name, 0) < FOREVER_MICROS
                for name, source in point.sources.items()
            ):
                raise PlanError(
                    f"the run {writer} has written into {pin.place} beyond the end of the state: "
                    "the run would write the same rows again",
                    where=f"table {pin.place}",
                    fix="export the state again after the run's end; or write elsewhere, --into "
                    "TABLE; --append writes beside them all the same",
                    run=writer,
                )


def _require_never_begun(record: RunRecord) -> None:
    """A live run whose folder is gone may have written anywhere: it is recovered, or cancelled."""
    if record.mode in REPEATABLE or record.state is RunState.PLANNED:
        return
    raise PlanError(
        f"the live run {record.run} of this pipeline is {record.state} and has lost its folder: "
        "rows after its last commit would be left out",
        where=f"pipeline {record.pipeline}",
        fix=f"'tidemill run {record.pipeline} --recover-from-archive {record.run}' goes on after "
        f"it; 'tidemill cancel {record.run}' gives it up; --append runs beside it",
        run=record.run,
    )


def require_meetings(loaded: LoadedConfig, manifest: Manifest) -> None:
    """Refuse a live run whose instances could not be caught up, because of its logs."""
    for pin in manifest.sources.values():
        if not live_home(loaded, pin.stream).ends_anywhere:
            raise PlanError(
                "an instance that is created late is handed over to the live run at one frontier, "
                "and the slices of this log end where its own records say",
                where=f"stream {pin.stream}",
                fix="give the stream live: {type: kafka, …}, or an Iceberg archive, whose tail is "
                "read",
            )


def require_live(home: Path, run: str) -> None:
    """Refuse to give way to what is no live run. It need not run now: it may later."""
    record = open_registry(home).get(run)
    manifest = find_manifest(home, record.run)
    if manifest is not None and manifest.times.ends:
        raise PlanError(
            f"--yield-to: the run {record.run} is a backfill, which has no lag to give way to",
            fix="name a live run or an archive run, best by its --name",
        )

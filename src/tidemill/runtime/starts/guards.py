"""What must be true of tables and other runs before a new run may begin.

Names are compared when the YAML is loaded and planned; here it is what the catalog and the registry
say. All of it is metadata, except where files only straddle a range: then one column is read.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.archive.progress import name_of, read_reached
from tidemill.connectors.archives.opening import archive_of
from tidemill.connectors.sinks.iceberg.commit import property_name
from tidemill.errors import PlanError, RunError
from tidemill.planning.plan import Beginning
from tidemill.runfolder.folder import RunFolder
from tidemill.runtime.registry import RunState, open_registry
from tidemill.runtime.starts.naming import REPEATABLE
from tidemill.types import TimeRange, from_micros, show_instant

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tidemill.planning.manifest import Manifest
    from tidemill.planning.plan import BackfillRequest
    from tidemill.runtime.registry import RunRecord

_SHOWN = 3


@contextmanager
def one_start_at_a_time(home: Path) -> Iterator[None]:
    """Hold the project while a run is checked and written down: two starts see each other."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / "start.lock").open("a")
    except OSError as error:
        raise RunError(
            f"the run cannot be written: {error.strerror or error}",
            where=str(error.filename or home),
            fix="free space or give write permission, or set home: in the YAML",
        ) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def require_place(
    catalog: Catalog, manifest: Manifest, request: BackfillRequest, home: Path
) -> None:
    """The run may write where its manifest says; otherwise an error that says why not."""
    if request.live is not None and not request.append:
        require_only_live_run(manifest, home)
    warehouse = str(catalog.properties.get("warehouse", ""))
    if warehouse:
        _require_outside(warehouse, "tables that the run makes", manifest)
    if request.live is None and request.into is None:
        return  # shadows are new tables
    found = _existing(catalog, manifest)
    for name, table in found.items():
        _require_no_source(name, table, manifest)
        _require_outside(table.metadata.location, f"the table {name!r}", manifest)
        _require_no_archive(name, table)
    if request.append or request.live is Beginning.LATEST:
        return
    span = _span(manifest, request)
    for sink in manifest.sinks.values():
        if sink.table in found:
            _require_no_rows(found[sink.table], sink.table, sink.time, span, home)


def _existing(catalog: Catalog, manifest: Manifest) -> dict[str, Table]:
    """The tables of the run that are there already."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    names = [sink.table for sink in manifest.sinks.values()]
    found = {}
    for name in filter(None, (*names, manifest.late_table, manifest.dead_table)):
        with suppress(NoSuchTableError, NoSuchNamespaceError):
            found[name] = catalog.load_table(name)
    return found


def _require_no_source(name: str, table: Table, manifest: Manifest) -> None:
    """A source's table may be known to the catalog by another name."""
    known = str(table.metadata.table_uuid)
    for pin in manifest.sources.values():
        if pin.archive is not None and archive_of(pin.archive).is_table(pin.archive, known):
            raise PlanError(
                f"the table {name!r} is the pipeline's own source {pin.location}: it would read "
                "its own rows",
                where=f"stream {pin.stream}",
                fix="write into another table",
            )


def _require_outside(location: str, what: str, manifest: Manifest) -> None:
    """No table may be written inside of a folder that is read."""
    for pin in manifest.sources.values():
        if pin.archive is not None and archive_of(pin.archive).covers(pin.archive, location):
            raise PlanError(
                f"{what} would lie inside of the pipeline's own source, the folder {pin.location}: "
                "it would read its own rows",
                where=f"stream {pin.stream}",
                fix="move catalog.warehouse out of that folder, or name a narrower archive.path",
            )


def _require_no_archive(name: str, table: Table) -> None:
    reached = read_reached(table.metadata)
    if reached:
        raise PlanError(
            f"the table {name!r} is the archive of the topic {name_of(reached) or 'of a stream'}: "
            "'tidemill archive run' writes it, and a pipeline's rows would stand among its records",
            fix="write into another table",
        )


def _span(manifest: Manifest, request: BackfillRequest) -> tuple[int, int]:
    """The sink's times that the run may write; from a log's first row on, as old as late allows."""
    if request.live is not Beginning.EARLIEST:
        return manifest.output
    pins = manifest.sources.values()
    first = min(pin.leg.seam for pin in pins if pin.leg is not None)
    return max(manifest.output[0], first - max(pin.lateness for pin in pins)), manifest.output[1]


def _require_no_rows(
    table: Table, name: str, time: str | None, span: tuple[int, int], home: Path
) -> None:
    """Rows that are there would be there twice."""
    rows = count_rows(table, time, span)
    if not rows:
        return
    wrote = _writers(table, open_registry(home).runs())
    by = f"; it was written by {wrote}" if wrote else ""
    times = "" if time is None else f" with {time} in {_shown(span)}"
    raise PlanError(
        f"the table {name!r} has rows{times} already (up to {rows:,}){by}: the run would write "
        "them again",
        where=f"table {name}",
        fix="go on with the run that wrote them, 'tidemill resume RUN'; or write elsewhere, "
        "--into TABLE; or delete those rows first; --append writes beside them all the same",
        rows=rows,
    )


def count_rows(table: Table, time: str | None, span: tuple[int, int]) -> int:
    """How many rows the files have that hold rows of the range: 0 only if there is none.

    Without ``time`` it is every row. Known from metadata, unless a file only straddles the range.
    """
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThan

    if table.metadata.current_snapshot_id is None:
        return 0
    if time is not None and not _has_times(table, time):
        return 0  # the output does not fit the table: the run says so
    if time is None:
        scan = table.scan(AlwaysTrue())
        return sum(task.file.record_count for task in scan.plan_files())
    asked = And(
        GreaterThanOrEqual(term=time, value=span[0]), LessThan(term=time, value=span[1])
    )  # µs, for times with and without a zone
    scan = table.scan(asked, selected_fields=(time,), limit=1)
    rows = sum(task.file.record_count for task in scan.plan_files())
    return rows if rows and len(scan.to_arrow()) else 0


def _has_times(table: Table, column: str) -> bool:
    from pyiceberg.types import TimestampType, TimestamptzType

    fields = {field.name: field.field_type for field in table.schema().fields}
    return isinstance(fields.get(column), TimestampType | TimestamptzType)


def _writers(table: Table, runs: Iterable[RunRecord]) -> str:
    """The project's runs that the table has commits of, the newest first."""
    stamped = [run for run in runs if property_name(run.run) in table.metadata.properties]
    shown = [f"{run.run} ({run.mode}, {run.state})" for run in reversed(stamped[-_SHOWN:])]
    more = len(stamped) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _shown(span: tuple[int, int]) -> str:
    try:
        return str(TimeRange(from_micros(span[0]), from_micros(span[1])))
    except (OverflowError, ValueError):
        return f"[{show_instant(from_micros(span[0]))}, …)"


def require_only_live_run(manifest: Manifest, home: Path, besides: str | None = None) -> None:
    """Two live runs of a pipeline into one place would write every row twice.

    ``besides`` is the run that the new one goes on for.
    """
    places = {sink.place for sink in manifest.sinks.values()}
    for record in open_registry(home).runs():
        if record.pipeline != manifest.pipeline or record.state in _OVER:
            continue
        other = _manifest_of(home, record.run)
        if record.run in (besides, manifest.run) or (other is not None and other.ends):
            continue
        if other is None:
            _require_never_begun(record)
            continue
        shared = places & {sink.place for sink in other.sinks.values()}
        if shared:
            raise PlanError(
                f"the live run {record.run} of this pipeline writes {sorted(shared)[0]} and is "
                f"{record.state}: a second one would write the same rows again",
                where=f"pipeline {manifest.pipeline}",
                fix=f"'tidemill resume {record.run}' goes on with it; 'tidemill cancel "
                f"{record.run}' ends it for good, then start anew; --append runs both",
                run=record.run,
            )


_OVER = (RunState.FINISHED, RunState.CANCELLED)


def _manifest_of(home: Path, run: str) -> Manifest | None:
    with suppress(RunError):
        return RunFolder.of(home, run).read_manifest()
    return None


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

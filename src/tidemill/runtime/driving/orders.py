"""Orders to a run that another process drives: pause, stop, cancel, another rate.

An order is written into the run's control file. The driver looks at it several times a second, and
every source reads it before each slice, so an order acts within one slice.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemill.errors import RequestError, RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.cohorts import Cohorts
from tidemill.runfolder.control import read_control, update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, hold_watch, is_held, is_watched
from tidemill.runtime.registry import OVER, RunState
from tidemill.runtime.reports.overview import true_state
from tidemill.runtime.starts.starting import release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.driving.rewind import Rewound
    from tidemill.runtime.registry import Registry


def order(loaded: LoadedConfig, registry: Registry, run: str, **orders: bool) -> str:
    """Write orders for the driver of a run, which must have one, or a supervisor."""
    record = registry.get(run)
    path = RunFolder.of(loaded.home, record.run).path
    if not is_watched(path) and not is_held(path):
        state = true_state(loaded.home, record).state
        raise RunError(f"the run {record.run} is not running, it is {state}")
    update_control(path, **orders)
    return record.run


def order_rate(loaded: LoadedConfig, registry: Registry, run: str, rate: int | None) -> str:
    """Let a run read at most so many rows per second from its next slice on; None: no limit.

    It holds until the next order, also when the run is resumed: a run without
    a driver takes it, too.
    """
    if rate is not None and rate <= 0:
        raise RequestError(
            f"{rate} is not a positive number of rows per second", fix="'off' means no limit"
        )
    record = registry.get(run)
    folder = RunFolder.of(loaded.home, record.run)
    if record.state in OVER:
        raise RunError(f"the run {record.run} is {record.state}: it reads nothing any more")
    folder.read_manifest()  # says what to do if the folder is gone
    update_control(folder.path, rate=rate or 0)
    return record.run


@contextmanager
def supervised(loaded: LoadedConfig, registry: Registry, run: str) -> Iterator[Callable[[], bool]]:
    """Lock a run for a supervisor; yields a function that says whether somebody ended it."""
    folder = RunFolder.of(loaded.home, run)

    def is_over() -> bool:
        is_cancelled = registry.get(run).state is RunState.CANCELLED
        return is_cancelled or read_control(folder.path).stopping

    with hold_watch(folder.path, run):
        update_control(folder.path, stopping=False, paused=False)
        yield is_over
        record = true_state(loaded.home, registry.get(run))
        if record.state is RunState.FAILED and is_over():
            registry.set_state(run, RunState.STOPPED, record.error)


def rewind_run(loaded: LoadedConfig, registry: Registry, run: str, batch: int | None) -> Rewound:
    """Take a run without a driver back to a batch; nobody may begin to drive it meanwhile."""
    from tidemill.runtime.driving.rewind import rewind

    record = registry.get(run)
    folder = RunFolder.of(loaded.home, record.run)
    manifest = folder.read_manifest()
    if record.state in OVER:
        raise RunError(f"the run {record.run} is {record.state}: there is nothing to repeat")
    with hold_lease(folder.path, record.run):
        found = rewind(folder, manifest, batch)
        registry.set_state(record.run, RunState.STOPPED)
    return found


def cancel(loaded: LoadedConfig, registry: Registry, run: str) -> str:
    """End a run for good, also one whose folder is gone; without a driver it ends at once."""
    record = registry.get(run)
    folder = RunFolder.of(loaded.home, record.run)
    if record.state in OVER:
        raise RunError(f"the run {record.run} is {record.state} already")
    if is_held(folder.path):
        update_control(folder.path, cancelled=True)
        return record.run
    if folder.has_manifest():
        release(open_catalog(loaded), folder.read_manifest())
        registry.set_state(record.run, RunState.CANCELLED)
        _cancel_children(loaded, registry, folder)
    else:
        registry.set_state(record.run, RunState.CANCELLED, "its folder is gone")
    return record.run


def _cancel_children(loaded: LoadedConfig, registry: Registry, folder: RunFolder) -> None:
    """Nobody takes over any more what the children of a live run have caught up."""
    known = {each.run: each.state for each in registry.runs()}
    for cohort in Cohorts(folder.path).cohorts():
        if known.get(cohort.child, RunState.CANCELLED) not in OVER:
            cancel(loaded, registry, cohort.child)

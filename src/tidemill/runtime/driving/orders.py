"""Orders to a run that another process drives: pause, stop, cancel, another rate.

An order is written into the run's control file. The driver looks at it several times a second, and
every source reads it before each slice, so an order acts within one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.errors import RequestError, RunError
from tidemill.iceberg.catalog import open_catalog
from tidemill.runfolder.control import update_control
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.registry import OVER, RunState
from tidemill.runtime.starts.starting import release

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.runtime.registry import Registry


def order(loaded: LoadedConfig, registry: Registry, run: str, **orders: bool) -> str:
    """Write orders for the driver of a run, which must have one, or a supervisor."""
    record = registry.get(run)
    path = RunFolder.of(loaded.home, record.run).path
    if not is_watched(path) and not is_held(path):
        raise RunError(f"the run {record.run} is not running, it is {record.state}")
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


def cancel(loaded: LoadedConfig, registry: Registry, run: str) -> str:
    """End a run for good, also one whose folder is gone; without a driver it ends at once."""
    record = registry.get(run)
    folder = RunFolder.of(loaded.home, record.run)
    if record.state in OVER:
        raise RunError(f"the run {record.run} is {record.state} already")
    if is_held(folder.path):
        update_control(folder.path, cancelled=True)
    elif folder.has_manifest():
        release(open_catalog(loaded), folder.read_manifest())
        registry.set_state(record.run, RunState.CANCELLED)
    else:
        registry.set_state(record.run, RunState.CANCELLED, "its folder is gone")
    return record.run

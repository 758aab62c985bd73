"""Runs with a name: started by the same command again, they go on instead of beginning anew.

For whatever restarts a command: a container, systemd, cron. The registry knows which run a name
stands for; the manifest keeps what was asked for when it began.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import RunError
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.registry import RunState, open_registry
from tidemill.types import BEGINNING, FOREVER, TimeRange, show_duration, show_instant

if TYPE_CHECKING:
    from tidemill.planning.manifest import Manifest
    from tidemill.planning.plan import BackfillRequest
    from tidemill.runtime.registry import Registry

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_RUN = re.compile(r"\d{8}_\d{6}_[0-9a-f]{4}")
_NOT_ASKED = ("pipeline", "append", "allow_empty")  # they permit a start, and change no row
_FLAGS = {"live": "start", "regions": "region"}  # what the command line calls them
_BEGINNING = ("from", "to", "start")
REPEATABLE = ("backfill", "archive")
"""Runs that can be begun again: where they begin does not depend on when."""
PATIENCE = 15.0
"""Seconds for a driver that was told to stop: who restarts a command may be faster than it."""


def check_name(name: str) -> None:
    """A name fits into a command and a path, and looks like no run's id."""
    if _NAME.fullmatch(name) is None or _RUN.fullmatch(name) is not None:
        raise RunError(
            f"{name!r} cannot be a run's name",
            fix="use letters, digits, '.', '_' and '-', and not the form of a run's id",
        )


def asked_of(request: BackfillRequest) -> dict[str, Any]:
    """What a request says beside its pipeline, as plain values; what it leaves open is left out."""
    found: dict[str, Any] = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name in _NOT_ASKED or value == field.default:
            continue
        if isinstance(value, TimeRange):
            ends = {"from": (value.start, BEGINNING), "to": (value.end, FOREVER)}
            found |= {key: _plain(at) for key, (at, open_end) in ends.items() if at != open_end}
        else:
            found[_FLAGS.get(field.name, field.name.replace("_", "-"))] = _plain(value)
    return found


def show_options(manifest: Manifest) -> str:
    """What a run was begun with, beside where it began, to be added to a command that is shown."""
    words: list[str] = []
    for key, value in manifest.asked.items():
        if key in _BEGINNING or value is False:
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{key}"] if each is True else [f"--{key}", shlex.quote(str(each))]
    return "".join(f" {word}" for word in words)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return show_instant(value)
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, StrEnum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def find_named(home: Path, name: str, pipeline: str, asked: Mapping[str, Any]) -> Manifest | None:
    """The run of that name, which may go on now; None if there is none yet.

    A name whose run was never written whole is free: nothing was computed.
    """
    check_name(name)
    registry = open_registry(home)
    run = registry.named(name)
    if run is None:
        return None
    folder = RunFolder.of(home, run)
    if _is_over(registry, name, run):
        registry.unname(run)
        return None
    if not folder.has_manifest():
        _give_up(registry, name, run)
        return None
    manifest = folder.read_manifest()
    _require_asked(name, manifest, pipeline, asked)
    _require_free(name, run, folder.path)
    return manifest


def _give_up(registry: Registry, name: str, run: str) -> None:
    """A run without its folder. A live one has a place to go on from: it is not replaced.

    An archive's table says where a new run goes on, and a backfill begins again.
    """
    record = registry.get(run)
    if record.state is RunState.PLANNED and not registry.totals(run).batches:
        registry.remove(run)
        return
    if record.mode in REPEATABLE:
        registry.set_state(run, RunState.CANCELLED, "its folder is gone")
        registry.unname(run)
        return
    raise RunError(
        f"the run {name!r} ({run}) has lost its folder",
        fix=f"'tidemill run {record.pipeline} --recover-from-archive {run}' goes on after its last "
        f"commit, under this name; 'tidemill cancel {run}' gives it up, and another --name then "
        "starts a new run",
        run=run,
    )


def _is_over(registry: Registry, name: str, run: str) -> bool:
    """Whether the name is free again: its run was cancelled, and the command begins it anew.

    A live run is not begun anew by a command that is restarted: it would leave out what came since.
    """
    record = registry.get(run)
    if record.state is RunState.CANCELLED and record.mode in REPEATABLE:
        return True
    if record.state in (RunState.FINISHED, RunState.CANCELLED):
        raise RunError(
            f"the run {name!r} ({run}) is {record.state}: it does not go on",
            fix="choose another --name for a new run",
            state=record.state,
        )
    return False


def _require_asked(name: str, manifest: Manifest, pipeline: str, asked: Mapping[str, Any]) -> None:
    """The same name must mean the same work; where a recovered run began, its tables say."""
    then = {"pipeline": manifest.pipeline, **manifest.asked}
    now = {"pipeline": pipeline, **asked}
    ignored = _BEGINNING if manifest.recovers else ()
    keys = [key for key in sorted({*then, *now}) if key not in ignored]
    different = [key for key in keys if then.get(key) != now.get(key)]
    if different:
        told = "; ".join(
            f"{key} was {_shown(then, key)}, is {_shown(now, key)}" for key in different
        )
        raise RunError(
            f"the run {name!r} ({manifest.run}) was begun with other options: {told}",
            fix=f"give the same ones, or 'tidemill resume {name}'; another --name begins a new run",
            options=different,
        )


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not given"


def _require_free(name: str, run: str, folder: Path) -> None:
    """Wait a moment for a driver that is stopping; one that goes on is not disturbed."""
    deadline = time.monotonic() + PATIENCE
    while is_held(folder) or is_watched(folder):
        if time.monotonic() > deadline:
            raise RunError(
                f"the run {name!r} ({run}) is driven by another process",
                fix=f"'tidemill status {name}' shows it; 'tidemill stop {name}' ends that driver",
            )
        time.sleep(0.2)

"""Runs with a name: the same command, given again, continues the run instead of starting a new one.

This is for whatever restarts commands: a container, systemd, cron. The registry knows which run a
name stands for; the run's manifest keeps the options that the run was started with.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidemill.errors import RequestError, RunError
from tidemill.planning.code.params import write
from tidemill.planning.manifest import Manifest
from tidemill.planning.plan import RunRequest
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import is_held, is_watched
from tidemill.runtime.registry import OVER, Registry, RunRecord, RunState, open_registry
from tidemill.types import BEGINNING, FOREVER, TimeRange, show_duration, show_instant

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_RUN = re.compile(r"\d{8}_\d{6}_[0-9a-f]{4}")
_NOT_ASKED = ("pipeline", "append", "allow_empty")  # options that permit a start and change no row
_FLAGS = {
    "live": "start",
    "regions": "region",
    "instances": "instance",
}  # what the command line calls them
_BEGINNING = ("from", "to", "start", "emit-from")
REPEATABLE = ("backfill", "archive")
"""Modes whose runs can be started again: where they begin does not depend on today's date."""
PATIENCE = 15.0
"""Seconds to wait for a stopping driver, because a restarted command may be faster than it."""


def find_manifest(home: Path, run: str) -> Manifest | None:
    """The manifest of a run; None if its folder is gone."""
    with suppress(RunError):
        return RunFolder.of(home, run).read_manifest()
    return None


def check_name(name: str) -> None:
    """Refuse a name that does not fit into a command or a path, or that looks like a run's id."""
    if _NAME.fullmatch(name) is None or _RUN.fullmatch(name) is not None:
        raise RequestError(
            f"{name!r} cannot be a run's name",
            fix="use letters, digits, '.', '_' and '-', and not the form of a run's id",
        )


def asked_of(request: RunRequest) -> dict[str, Any]:
    """The options of a request, beside its pipeline, as plain values; defaults are left out."""
    found: dict[str, Any] = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name in _NOT_ASKED or value == field.default:
            continue
        if isinstance(value, TimeRange):
            ends = {"from": (value.start, BEGINNING), "to": (value.end, FOREVER)}
            found |= {key: _plain(at) for key, (at, open_end) in ends.items() if at != open_end}
        elif field.name == "params":
            found["param"] = [f"{key}={write(each)}" for key, each in value]
        else:
            found[_FLAGS.get(field.name, field.name.replace("_", "-"))] = _plain(value)
    return found


def show_options(manifest: Manifest) -> str:
    """The options a run was started with, except its range, as text to add to a shown command."""
    words: list[str] = []
    for key, value in manifest.identity.asked.items():
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
    """The manifest of the run with that name, which may continue now; None if there is none yet.

    It may also be a backfill that is finished: there is nothing to continue then. If a run's start
    was interrupted before its manifest was written, its name is free: that run computed nothing.
    """
    check_name(name)
    registry = open_registry(home)
    run = registry.named(name)
    if run is None:
        return None
    folder = RunFolder.of(home, run)
    if not _is_done(home, registry.get(run)) and _is_over(registry, name, run):
        registry.unname(run)
        return None
    if not folder.has_manifest():
        _give_up(registry, name, run)
        return None
    manifest = folder.read_manifest()
    _require_asked(name, manifest, pipeline, asked)
    _require_free(name, run, folder.path)
    return manifest


def _is_done(home: Path, record: RunRecord) -> bool:
    """Whether the run is a backfill that is finished, and its folder tells what was asked of it."""
    is_done = record.state is RunState.FINISHED and record.mode == "backfill"
    return is_done and RunFolder.of(home, record.run).has_manifest()


def _give_up(registry: Registry, name: str, run: str) -> None:
    """Free the name of a run that has no folder, if another run can replace it.

    A new archive run goes on where the table ends, and a backfill begins again. A live run is not
    replaced: it has to go on after its last commit.
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
    """Whether the name is free again: its run was cancelled, and the command may start a new one.

    A restarted command does not start a live run anew: the new run would leave out the rows that
    came since the old one ended.
    """
    record = registry.get(run)
    if record.state is RunState.CANCELLED and record.mode in REPEATABLE:
        return True
    if record.state in OVER:
        raise RunError(
            f"the run {name!r} ({run}) is {record.state}: it does not go on",
            fix=f"choose another --name for a new run, or 'tidemill forget {name}' first",
            state=record.state,
        )
    return False


def _require_asked(name: str, manifest: Manifest, pipeline: str, asked: Mapping[str, Any]) -> None:
    """Refuse other options than the named run has.

    For a recovered run the range is not compared: its tables say where the run began.
    """
    then = {"pipeline": manifest.pipeline, **manifest.identity.asked}
    now = {"pipeline": pipeline, **asked}
    ignored = _BEGINNING if manifest.identity.origin.recovers else ()
    keys = [key for key in sorted({*then, *now}) if key not in ignored]
    different = [key for key in keys if then.get(key) != now.get(key)]
    if different:
        told = "; ".join(
            f"{key} was {_shown(then, key)}, is {_shown(now, key)}" for key in different
        )
        raise RequestError(
            f"the run {name!r} ({manifest.run}) was begun with other options: {told}",
            fix=f"give the same ones, or 'tidemill resume {name}'; another --name begins a new run",
            options=different,
        )


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not given"


def _require_free(name: str, run: str, folder: Path) -> None:
    """Wait a moment for a driver that is stopping, and fail if the driver keeps running."""
    deadline = time.monotonic() + PATIENCE
    while is_held(folder) or is_watched(folder):
        if time.monotonic() > deadline:
            raise RunError(
                f"the run {name!r} ({run}) is driven by another process",
                fix=f"'tidemill status {name}' shows it; 'tidemill stop {name}' ends that driver",
            )
        time.sleep(0.2)

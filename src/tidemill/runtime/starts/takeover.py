"""One run takes over from another whose checkpoint is lost; the two never run at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import PlanError, RunError
from tidemill.planning.behaviour import describe_difference, first_difference
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lease import hold_lease, is_held
from tidemill.runtime.registry import RunState
from tidemill.runtime.starts.recovery import clock_rows
from tidemill.types import BEGINNING, to_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import Manifest
    from tidemill.runtime.registry import Registry


@dataclass(frozen=True)
class Takeover:
    """What the registry and the lost run's folder say, as far as they are still there."""

    home: Path
    registry: Registry
    pipeline: str
    lost: str
    changed_code: bool = False  # the user accepts that the code does something else now

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lost run's lease until the manifest of the new run is written.

        A run that still has a driver must not be recovered: both runs would write. A refusal
        changes nothing.
        """
        self._require_first()
        folder = RunFolder.of(self.home, self.lost)
        if not folder.path.exists():
            yield
            return
        if is_held(folder.path):
            raise RunError(
                f"the run {self.lost} is running", fix=f"'tidemill stop {self.lost}' first"
            )
        with hold_lease(folder.path, self.lost):
            yield

    def _require_first(self) -> None:
        """Refuse if another run has taken over already: both would write the same rows."""
        over = (RunState.CANCELLED, RunState.FINISHED)
        for record in self.registry.runs():
            if record.pipeline != self.pipeline or record.state in over:
                continue
            theirs = self._manifest(record.run)
            if theirs is not None and theirs.recovers == self.lost:
                raise RunError(
                    f"the run {record.run} goes on for {self.lost} already",
                    fix=f"'tidemill resume {record.run}'",
                )

    def require_same_code(self, manifest: Manifest, digest: str) -> None:
        """Refuse if this run's code or filters differ from those of the lost run.

        The new run discards the rows that the lost run has written already, which is only right if
        both compute the same rows. ``digest`` is the code's digest in the lost run's last commit,
        because the lost run's manifest may be gone.
        """
        theirs = self._manifest(self.lost)
        if theirs is not None:
            _require_same_rows(theirs, manifest)
        if self.changed_code or digest in ("", manifest.code_digest):
            return
        found = first_difference(theirs.behaviour, manifest.behaviour) if theirs else None
        what = (
            f"does something else than that of the lost run: {describe_difference(*found)}"
            if found
            else "or its filters (--where, --region) are not those of the lost run"
        )
        raise PlanError(
            f"the code of {self.pipeline!r} {what}",
            where=f"run {self.lost}",
            fix="restore the code, and give the options that the lost run was begun with; "
            "--changed-code goes on all the same: windows that were open at the end of the lost "
            "run are then made by the new code alone",
        )

    def inherit(self, manifest: Manifest, catalog: Catalog) -> Manifest:
        """Take over the lost run's output range, name, options and count of rows behind the clock.

        If the lost run's manifest is gone, the range is all of time; if the registry does not know
        the run, the rows behind the clock are counted in the late table.
        """
        if self._is_known():
            clock = self.registry.totals(self.lost).clock
        else:
            clock = clock_rows(catalog, manifest.late_table)
        theirs = self._manifest(self.lost)
        name = manifest.name or (self.registry.get(self.lost).name if self._is_known() else None)
        manifest = replace(manifest, name=name)
        if theirs is None:
            return replace(
                manifest, output=(to_micros(BEGINNING), manifest.output[1]), inherited=clock
            )
        return replace(
            manifest,
            output=theirs.output,
            inherited=clock + theirs.inherited,
            asked=theirs.asked or manifest.asked,
        )

    def give_up(self, successor: str) -> None:
        """Mark the lost run as cancelled, because ``successor`` has taken over."""
        if self._is_known():
            why = f"its checkpoint was lost; recovered by {successor}"
            self.registry.set_state(self.lost, RunState.CANCELLED, why)

    def _is_known(self) -> bool:
        return any(record.run == self.lost for record in self.registry.runs())

    def _manifest(self, run: str) -> Manifest | None:
        with contextlib.suppress(RunError):
            return RunFolder.of(self.home, run).read_manifest()
        return None


def _require_same_rows(lost: Manifest, manifest: Manifest) -> None:
    """Refuse other row filters than the lost run had: the new run must read the same rows."""
    for name, pin in manifest.sources.items():
        before = lost.sources[name].where if name in lost.sources else pin.where
        if pin.where != before:
            raise PlanError(
                f"the lost run read {name} where {before or 'nothing is filtered'}, this one "
                f"would read it where {pin.where or 'nothing is filtered'}",
                where=f"pipeline {manifest.pipeline}",
                fix="give the --where and --region that the lost run was begun with",
            )

"""Whether a run may still write rows into a range that is to be replaced."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import RunError
from tidemill.runtime.registry import OVER, Registry, RunRecord
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import MILLISECOND, from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.replacing import Production
    from tidemill.planning.manifest import Manifest

_RECENT = 3_600_000
"""ms: a run that is not ours and whose last commit is older than that does not count as alive."""


def has_passed(watermark: int | None, end: int, look_ahead: int) -> bool:
    """Whether a run whose last batch had this watermark (ms) writes no more row before ``end``.

    A row of time *t* needs input until ``t + look_ahead`` and no more, and what is behind the
    watermark has been written or is late.
    """
    return watermark is not None and watermark * MILLISECOND >= end + look_ahead


@dataclass(frozen=True)
class Writers:
    """The runs that write a place, beside a range of it that is to be replaced."""

    loaded: LoadedConfig
    registry: Registry
    production: Production
    span: tuple[int, int]
    look_ahead: int

    def require_none(self) -> None:
        """Refuse while a run that is not over could still write rows of the range."""
        known, lost = {record.run for record in self.registry.runs()}, set[str]()
        for record in self.registry.runs():
            manifest = None if record.state in OVER else find_manifest(self.loaded.home, record.run)
            if manifest is not None and self._is_written_by(manifest):
                self._require_beyond(record, manifest)
            if manifest is None and record.state not in OVER:
                lost.add(record.run)
        now = time.time_ns() // 1_000_000
        for run, last in self.production.writers().items():
            is_alive = run in lost or (run not in known and now - last.at < _RECENT)
            if is_alive and not has_passed(last.stamp.watermark, self.span[1], self.look_ahead):
                if run in lost:
                    raise self._busy(
                        f"the run {run} writes into {self.production.place}, has lost its folder, "
                        "and could still write rows of the range if the folder is restored",
                        f"'tidemill cancel {run}' ends it for good",
                    )
                raise self._busy(
                    f"the run {run} of another project wrote into {self.production.place} a moment "
                    "ago",
                    "wait until it is beyond the range",
                )

    def _is_written_by(self, manifest: Manifest) -> bool:
        return any(pin.place == self.production.place for pin in manifest.outputs.sinks.values())

    def _require_beyond(self, record: RunRecord, manifest: Manifest) -> None:
        place = self.production.place
        if manifest.times.ends:
            low, high = manifest.times.output
            if low < self.span[1] and self.span[0] < high:
                raise self._busy(
                    f"the backfill {record.run} writes into {place} and is {record.state}",
                    f"'tidemill resume {record.run}' finishes it, 'tidemill cancel {record.run}' "
                    "ends it for good",
                )
            return
        if manifest.times.output[0] >= self.span[1]:
            return  # it writes no row of an earlier time: --emit-from, or --from
        watermark = self.registry.totals(record.run).watermark
        needed = max(self.look_ahead, manifest.times.needs.look_ahead or 0)
        if not has_passed(watermark, self.span[1], needed):
            at = "has no batch yet"
            if watermark is not None:
                at = f"is at {_shown(watermark * MILLISECOND)}"
            raise self._busy(
                f"the live run {record.run} writes into {place} and {at} ({record.state}): it "
                "could still write rows of the range",
                f"wait until its watermark is beyond {_shown(self.span[1] + needed)}; if it is not "
                f"to go on, 'tidemill cancel {record.run}'",
            )

    def _busy(self, what: str, fix: str) -> RunError:
        low, high = map(_shown, self.span)
        return RunError(
            what,
            where=f"table {self.production.place}, range [{low}, {high})",
            fix=f"{fix}; --while-live goes on all the same, and rows may then be there twice. "
            "Nothing was changed",
        )


def _shown(at: int) -> str:
    return show_instant(from_micros(at))

"""When history is read: lay on what the archive has grown by, or go over to the live log.

Both in one query with one checkpoint. The decision is written before a source can act on it, and
a snapshot is tagged before the decision names it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemill.config.loader import LoadedConfig
from tidemill.connectors.archives.opening import archive_of, keep_metadata, open_reader
from tidemill.connectors.logs.contract import LogAway, home_of, open_log
from tidemill.iceberg.catalog import open_catalog
from tidemill.iceberg.outage import is_outage, one_line
from tidemill.planning.manifest import HistoryPhase, Manifest, SourcePin
from tidemill.planning.slices import cut_by_rows
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.lag import write_waiting
from tidemill.runfolder.offset_log import latest_entry, oldest_entry
from tidemill.runfolder.phases import Extension, HistoryPhases, read_phases, write_phases
from tidemill.runtime.driving.beside import Beside
from tidemill.runtime.plans.liveplan import archive_progress
from tidemill.types import from_micros

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5
_KEPT = 8


class SeamWatch:
    """Looks whether all sources stand at their seams, and decides how they go on."""

    def __init__(self, loaded: LoadedConfig, folder: RunFolder, manifest: Manifest) -> None:
        self.loaded, self.folder, self.manifest = loaded, folder, manifest
        self._history = read_phases(folder.path, manifest)
        self._looked = 0.0
        self._beside = Beside("seam")
        self._released = False

    def look(self) -> None:
        """Called often by the driver; never waits. What has failed is raised at the next look."""
        if self._released or time.monotonic() - self._looked < _PAUSE:
            return
        if not self._beside.is_busy:
            self._looked = time.monotonic()
            self._beside.begin(self._look)

    def _look(self) -> None:
        """It may wait for a catalog or a log, and the driver does not."""
        if self._history.is_live:
            try:
                self._let_go()
            except Exception as error:
                if not is_outage(error):
                    raise
                _LOG.info("history stays pinned for now: %s", error)
            return
        entry = latest_entry(self.folder.checkpoint)
        if entry is None:
            return
        reached = entry.slowest()
        if all(reached.get(name, 0) >= seam for name, seam in self._history.seams().items()):
            try:
                decided = self._decide(self._history)
            except Exception as error:
                if not isinstance(error, LogAway) and not is_outage(error):
                    raise
                why = "" if isinstance(error, LogAway) else "the catalog does not answer: "
                for name, frontier in reached.items():
                    write_waiting(self.folder.path, name, frontier, why + one_line(error))
                return
            self._history = write_phases(self.folder.path, decided)

    def _let_go(self) -> None:
        """Unpin history when no rewind can lead back to it: from then on it costs nothing."""
        oldest = oldest_entry(self.folder.checkpoint)
        if oldest is not None and all(end.is_live for end in oldest.ends.values()):
            catalog = open_catalog(self.loaded)
            for pin in self.manifest.sources.values():
                if pin.archive is None or pin.live is None:
                    continue
                if not home_of(pin.live).reads_archive:
                    archive_of(pin.archive).release(pin.archive, catalog, self.manifest.run)
            self._released = True

    def _decide(self, history: HistoryPhases) -> HistoryPhases:
        catalog = open_catalog(self.loaded)
        clock = time.time_ns() // 1_000  # before the snapshots are chosen
        pins = {
            name: replace(pin, archive=archive_of(pin.archive).newest(pin.archive, catalog))
            for name, pin in self.manifest.sources.items()
            if pin.archive is not None
        }
        reached = {name: archive_progress(catalog, pin) for name, pin in pins.items()}
        # A table that does not say how far it is complete is followed by its snapshots, live: only
        # there rows are found that came behind what the clock allowed.
        phases = {
            name: open_log(self.loaded, pin, catalog).seam(reached[name], clock)
            for name, pin in pins.items()
            if reached[name]
        }
        seams = history.seams()
        if any(
            phase.seam - seams[name] > self.manifest.times.misalignment
            for name, phase in phases.items()
        ):
            return self._extend(catalog, history, pins, phases)
        for name, pin in self.manifest.sources.items():
            log = open_log(self.loaded, pin, catalog)
            log.look()
            log.require_seam(history.phases(name)[-1])
        _LOG.info("run %s goes live at %s", self.manifest.run, seams)
        return replace(history, switched=True)

    def _extend(
        self,
        catalog: Catalog,
        history: HistoryPhases,
        pins: dict[str, SourcePin],
        phases: dict[str, HistoryPhase],
    ) -> HistoryPhases:
        seams = history.seams()
        known = {name: history.phases(name)[-1] for name in pins}
        phases = known | {name: phase for name, phase in phases.items() if phase.seam > seams[name]}
        number = len(history.extensions) + 1
        low, high = min(seams.values()), max(phase.seam for phase in phases.values())
        extents = []
        for name, pin in pins.items():
            if pin.archive is not None:
                archive_of(pin.archive).hold(pin.archive, catalog, self.manifest.run, _KEPT)
            keep_metadata(pin, catalog, self.folder.table(name, number))
            extents += [e for _, e in open_reader(pin, catalog).extents(low, high)]
        widest = from_micros(self.manifest.times.misalignment) - from_micros(0)
        boundaries = cut_by_rows((low, high), extents, limit=widest)
        _LOG.info("run %s reads history on to %s", self.manifest.run, from_micros(high))
        return replace(history, extensions=(*history.extensions, Extension(boundaries, phases)))

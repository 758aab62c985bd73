"""Check, before a driver starts, that the run's checkpoint is not older than its tables.

Spark's checkpoint says which batch comes next, and what the batches before it held. A checkpoint
that is older than the tables (a run's folder restored from a copy, a deleted checkpoint, a disk
that lost its last writes) would decide other batches under numbers that the tables have already.
So the stamp in each table is compared with the offset log, and with the journal of a rewound run.
The registry's last batch is compared too: it covers batches that committed nothing to a table, and
batches that wrote to a topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.connectors.sinks.contract import Sink
from tidemill.connectors.sinks.stamp import BatchStamp, difference
from tidemill.errors import PlanError
from tidemill.planning.manifest import Manifest
from tidemill.planning.offsets import BatchOffsets
from tidemill.runfolder.folder import RunFolder
from tidemill.runfolder.journal import read_journal
from tidemill.runfolder.offset_log import last_batch, read_batch
from tidemill.runtime.registry import Registry
from tidemill.runtime.starts.naming import show_options
from tidemill.types import from_micros, show_instant


def stamp_of(
    run: str,
    batch: int,
    before: BatchOffsets | None,
    now: BatchOffsets,
    begun: Mapping[str, int] | None = None,
) -> BatchStamp:
    """The stamp of a batch, from its entry in the offset log and the one before.

    ``begun`` is where the sources began, for a first batch. Without ``before`` and ``begun`` the
    stamp does not say where the batch begins.
    """
    return BatchStamp(
        run,
        batch,
        now.slowest(),
        now.watermark,
        before={**(begun or {}), **(before.slowest() if before else {})},
        positions={
            source: end.positions for source, end in now.ends.items() if end.positions is not None
        },
        apart=now.apart(),
        apart_before=before.apart() if before else (),
    )


def require_checkpoint(
    manifest: Manifest, folder: RunFolder, places: Mapping[str, Sink], registry: Registry
) -> dict[str, BatchStamp]:
    """This run's stamps at the places that it writes, all of which the checkpoint knows.

    Driver, before Spark starts. A stamp that the checkpoint does not know, or knows otherwise,
    means that the checkpoint is older than the table: an error that says what to do.
    """
    told = {name: sink.stamps().get(manifest.run) for name, sink in places.items()}
    stamps = {name: found.stamp for name, found in told.items() if found is not None}

    def older(what: str, wrong: str) -> PlanError:
        return _older(manifest, what, wrong, _way_out(manifest, places, bool(stamps)))

    for table, stamp in stamps.items():
        wrong = _contradiction(folder, stamp)
        if wrong is not None:
            raise older(f"the table {table} has batch {stamp.batch}", wrong)
    newest = registry.newest_batch(manifest.run)
    if newest is not None:
        _require_outputs(manifest, places)
        number, frontier = newest
        known = _known_frontiers(folder, number)
        what = f"the registry knows batch {number}"
        if known is None and number > last_batch(folder.checkpoint):
            raise older(what, _beyond(folder))
        if known is not None and min(known.values()) != frontier:
            raise older(what, "in the checkpoint it ends elsewhere")
    return stamps


def _require_outputs(manifest: Manifest, places: Mapping[str, Sink]) -> None:
    """Refuse to make a table anew that the run has written: it would lack all rows of before.

    Every output's table is made before the first batch, those of late and dead rows are not.
    """
    for pin in manifest.outputs.sinks.values():
        sink = places.get(pin.place)
        if sink is not None and sink.keeps_stamps and not sink.is_there():
            way_out = _way_out(manifest, places, has_commits=False)
            raise PlanError(
                f"the table {pin.place}, which the run has written, is gone: with a new one it "
                "would lack the rows of all batches before",
                where=f"run {manifest.run}",
                fix=f"restore the table; if that cannot be done, {way_out}",
                run=manifest.run,
            )


def _contradiction(folder: RunFolder, stamp: BatchStamp) -> str | None:
    """How the checkpoint contradicts the stamp; None if it agrees, or has forgotten that batch."""
    entry = read_batch(folder.checkpoint, stamp.batch)
    if entry is not None:
        before = read_batch(folder.checkpoint, stamp.batch - 1)
        known = stamp_of(stamp.run, stamp.batch, before, entry)
        is_same = stamp.is_same(known)
        return None if is_same else f"the checkpoint has another: {difference(stamp, known)}"
    if stamp.batch <= last_batch(folder.checkpoint):
        return None  # Spark keeps the entries of the last batches only
    known_ends = _journal(folder).get(stamp.batch)
    if known_ends is None:
        return _beyond(folder)
    return None if known_ends == stamp.frontiers else "before the rewind it ended elsewhere"


def _known_frontiers(folder: RunFolder, batch: int) -> dict[str, int] | None:
    entry = read_batch(folder.checkpoint, batch)
    if entry is not None:
        return entry.slowest()
    return _journal(folder).get(batch) if batch > last_batch(folder.checkpoint) else None


def _journal(folder: RunFolder) -> dict[int, dict[str, int]]:
    """The frontiers of the batches that a rewind took back; empty if the journal does not apply.

    A rewind leaves the offset log entry of the first batch in its journal. A checkpoint that lacks
    this entry is older than the rewind.
    """
    journal = read_journal(folder.path)
    return journal if journal and min(journal) <= last_batch(folder.checkpoint) else {}


def _beyond(folder: RunFolder) -> str:
    last = last_batch(folder.checkpoint)
    return "the checkpoint has none" if last < 0 else f"the checkpoint ends with batch {last}"


def _older(manifest: Manifest, what: str, wrong: str, way_out: str) -> PlanError:
    run = manifest.run
    return PlanError(
        f"{what} of this run, but {wrong}. The checkpoint is older than what the run wrote: from "
        "it the run would write other rows under old numbers, and lose them",
        where=f"run {run}",
        fix=f"restore the newest copy of the run's folder; if there is none, {way_out}",
        run=run,
    )


def _way_out(manifest: Manifest, places: Mapping[str, Sink], has_commits: bool) -> str:
    run, command = manifest.run, f"tidemill run {manifest.pipeline}"
    if not manifest.code.is_there:
        streams = " ".join(manifest.sources)
        return (
            f"'tidemill cancel {run}', then 'tidemill archive run {streams}': a new run goes on "
            "where the table ends"
        )
    if manifest.times.ends:
        return f"'tidemill cancel {run}', and start the backfill again"
    if not all(sink.keeps_stamps for sink in places.values()):
        return f"'tidemill cancel {run}', and start a new run with --from"
    if not has_commits:
        begin = show_instant(from_micros(manifest.times.boundaries[0]))
        return (
            f"'tidemill cancel {run}', and begin again where it began, '{command} --from {begin}"
            f"{show_options(manifest)}': no table has rows of it yet"
        )
    recovery = f"{command} --recover-from-archive {run}{show_options(manifest)}"
    return f"'{recovery}' goes on after its last commit"

"""A lost checkpoint: rebuild a run's state from the archive, and go on after its last commit.

Every commit says which frontiers its batch had, which the batch before it had, and with which
watermark it ran. So history is replayed over what the code looks back, cut so that the last
batches are the lost run's own, and what they give is discarded: it is in the tables already.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import PlanError, SourceError
from tidemill.planning.manifest import Leg, Stamp
from tidemill.sinks.commit import RUN_IN_SUMMARY, property_name
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from datetime import datetime

    from pyiceberg.catalog import Catalog

    from tidemill.planning.manifest import Manifest, SourcePin
    from tidemill.planning.offsets import BatchOffsets
    from tidemill.planning.plan import BackfillPlan

LATEST = "latest"


def require_tables(manifest: Manifest) -> None:
    """Only a table says how far a run came that wrote it."""
    for name, sink in manifest.sinks.items():
        if sink.topic is not None:
            raise PlanError(
                f"the output {name!r} goes to the topic {sink.topic!r}, which does not say how far "
                "the lost run came",
                where=f"pipeline {manifest.pipeline}",
                fix="start a new run with --from: its messages carry another run id",
            )


def find_lost(catalog: Catalog, tables: Iterable[str], run: str) -> tuple[str, dict[str, Stamp]]:
    """The lost run, and its last commit in each of the tables that it wrote."""
    found = {name: catalog.load_table(name) for name in tables if catalog.table_exists(name)}
    if run == LATEST:
        newest = [
            (snapshot.timestamp_ms, snapshot.summary.additional_properties[RUN_IN_SUMMARY])
            for table in found.values()
            for snapshot in table.metadata.snapshots
            if snapshot.summary and RUN_IN_SUMMARY in snapshot.summary.additional_properties
        ]
        run = max(newest, default=(0, ""))[1]
    stamps = {
        name: _stamp(table.metadata.properties[property_name(run)])
        for name, table in found.items()
        if property_name(run) in table.metadata.properties
    }
    if not stamps:
        raise PlanError(
            f"no table of the pipeline has a commit of {f'run {run}' if run else 'any run'}",
            fix="there is nothing to recover: start it with 'tidemill run'",
        )
    return run, stamps


def _stamp(text: str) -> Stamp:
    value = json.loads(text)
    if value.get("apart"):
        raise PlanError(
            f"in the last commit of the lost run the uses of {', '.join(value['apart'])} stood at "
            "different places: what it had given beyond the slower one cannot be told apart",
            fix="start a new run with --from, into another table, and compare",
        )
    return Stamp(
        frontiers=value["frontiers"],
        before=value.get("before", {}),
        watermark=value["batchWatermarkMs"],
        positions=value.get("positions", {}),
    )


def output_start(stamps: Iterable[Stamp], plan: BackfillPlan) -> datetime:
    """The earliest output that may not have been given: later input can still be part of it."""
    lateness = max(pin.lateness for pin in plan.pins.values())
    oldest = min(min(stamp.before.values()) for stamp in stamps)
    return from_micros(oldest - lateness) - plan.margins.look_ahead - timedelta(milliseconds=1)


def recover(manifest: Manifest, stamps: dict[str, Stamp]) -> Manifest:
    """The manifest of a run that goes on where the lost one ended.

    A table that the lost run never wrote had nothing to get before the batch of the newest commit.
    Of that one itself it may lack rows: the run may have died between two tables.
    """
    newest = _newest(stamps.values())
    tables = [sink.table for sink in manifest.sinks.values()]
    unwritten = replace(
        newest, frontiers=newest.before or newest.frontiers, watermark=newest.watermark - 1
    )
    discard = {
        name: stamps.get(name, unwritten)
        for name in (*tables, manifest.late_table, manifest.dead_table)
    }
    steps = _steps(stamps.values(), set(manifest.sources))
    sources = {name: _leg(manifest, name, steps, stamps.values()) for name in manifest.sources}
    ends = [pin.leg.seam for pin in sources.values() if pin.leg is not None]
    low = min(manifest.boundaries[0], *(min(step.values()) for step in steps))
    return replace(
        manifest,
        sources=sources,
        boundaries=(low, max(ends)),
        steps=tuple(steps),
        discard=discard,
    )


def _newest(stamps: Iterable[Stamp]) -> Stamp:
    return max(stamps, key=lambda stamp: (sum(stamp.frontiers.values()), stamp.watermark))


def _steps(stamps: Iterable[Stamp], sources: set[str]) -> list[dict[str, int]]:
    """The frontiers the last batches of the lost run had, in order, each once."""
    found = []
    for stamp in stamps:
        if set(stamp.frontiers) != sources:
            raise PlanError(
                f"the lost run read {', '.join(sorted(stamp.frontiers))}, the pipeline reads "
                f"{', '.join(sorted(sources))}",
                fix="restore the pipeline's code, or start a new run",
            )
        found += [step for step in (stamp.before, stamp.frontiers) if set(step) == sources]
    found.sort(key=lambda step: sum(step.values()))
    return [step for index, step in enumerate(found) if index == 0 or step != found[index - 1]]


def _leg(
    manifest: Manifest,
    name: str,
    steps: list[dict[str, int]],
    stamps: Iterable[Stamp],
) -> SourcePin:
    """The source's own way to the lost run's end: shared boundaries, and the steps.

    The slices that the commits took stay whole: no boundary lies inside of one.
    """
    pin = manifest.sources[name]
    assert pin.leg is not None
    newest = _newest(stamps)
    end = newest.frontiers[name]
    if pin.leg.seam < end:
        raise SourceError(
            f"the archive reaches {show_instant(from_micros(pin.leg.seam))}, the lost run had read "
            f"to {show_instant(from_micros(end))}",
            where=f"stream {pin.stream}",
            fix=f"let 'tidemill archive run {pin.stream}' follow the log that far, then try again",
        )
    begin = min(manifest.boundaries[0], *(min(step.values()) for step in steps))
    taken = [(stamp.before.get(name, begin), stamp.frontiers[name]) for stamp in stamps]
    shared = {
        b
        for b in manifest.boundaries
        if begin < b < end and not any(low < b < high for low, high in taken)
    }
    own = sorted({*shared, *(step[name] for step in steps)} - {begin})
    positions = newest.positions.get(name)
    if positions is None:  # it was still in history: so is what comes next
        rest = [b for b in manifest.boundaries if own[-1] < b < pin.leg.seam]
        leg = replace(pin.leg, boundaries=(begin, *own, *rest))
        return replace(pin, leg=leg)
    leg = Leg(
        seam=end,
        snapshot=pin.leg.snapshot,
        schema_id=pin.leg.schema_id,
        positions=positions,
        boundaries=(begin, *own),
    )
    return replace(pin, leg=leg)


def is_given(stamp: Stamp, now: BatchOffsets, *, took: bool) -> bool:
    """Whether what a batch gives is in the table already: it is not after the last commit.

    ``took`` says that it read rows. Two batches may have the same frontiers: first the one that
    took them, then one without rows, with a later watermark. Of a source that is used twice one
    use may be ahead: then the batch is after the commit.
    """
    slowest = now.slowest()
    if any(slowest[name] < at for name, at in stamp.frontiers.items()):
        return True
    same = all(now.furthest(name) == at for name, at in stamp.frontiers.items())
    return same and (took or now.watermark <= stamp.watermark)

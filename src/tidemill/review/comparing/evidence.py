"""Gather what is known of the runs behind both sides: what they read, and what went aside in them.

Reads manifests, stamps, and the tables of late and dead rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.connectors.sinks.iceberg.table import SideTable
from tidemill.review.comparing.causes import Aside, Cause, Evidence, Writer
from tidemill.review.comparing.rules import TIME, Rules
from tidemill.rows.verdict import CLOCK, SIDE_SCHEMA
from tidemill.runtime.starts.naming import find_manifest
from tidemill.types import FOREVER_MICROS

if TYPE_CHECKING:
    import polars as pl

    from tidemill.connectors.sinks.contract import SinkRun
    from tidemill.connectors.sinks.stamp import BatchStamp
    from tidemill.planning.manifest import Manifest
    from tidemill.review.comparing.sides import SideFinder, Sides
    from tidemill.runtime.registry import Registry

_HELD = 2_000_000
_POSITION = ["source", "partition", "offset"]
_CONTENT = ["source", "ingest_time", "event_time", "row"]


def gather(finder: SideFinder, sides: Sides, rules: Rules) -> Evidence:
    """The evidence for one output of a run."""
    ours = finder.manifest
    reach = reach_of(ours)
    registry, home = finder.registry, finder.loaded.home
    there, published = sides.there, sides.there.view.published
    stamps: dict[str, BatchStamp | None] = {}
    if there.manifest is not None:
        stamps[there.manifest.run] = there.view.stamps.get(there.manifest.run)
    else:
        stamps |= {run: at for run, at in there.view.stamps.items() if run != ours.run}
    known = {run: find_manifest(home, run) for run in (*stamps, *published)}
    spans = tuple(published.values())
    writers = tuple(
        replace(
            writer_of(run, stamps[run], known, reach, _frontier(registry, run, stamps[run])),
            replaced=spans,
        )
        for run in stamps
    ) + tuple(
        replace(_ours(manifest), covers=published[run], replaced=spans[number + 1 :])
        for number, run in enumerate(published)
        if (manifest := known[run]) is not None
    )
    others = [manifest for manifest in known.values() if manifest is not None]
    ends = [_frontier(registry, run, at) for run, at in stamps.items()]
    theirs = (
        min((other.times.boundaries[0] for other in others), default=0),
        max((end for end in ends if end is not None), default=FOREVER_MICROS),
    )
    aside, notes = _aside(finder, others, theirs, rules, sides.span)
    return Evidence(_ours(ours), writers, reach, aside, notes)


def reach_of(manifest: Manifest) -> tuple[int, int]:
    """How long before and after a row's time its input lies (µs).

    A manifest that does not say so tells at least how much more input than output was read.
    """
    times = manifest.times
    (low, high), bounds = times.output, times.boundaries
    lateness, skew = _allowed(manifest)
    before, after = times.needs.warm_up, times.needs.look_ahead
    return (
        max(0, low - skew - bounds[0]) if before is None else before,
        max(0, bounds[-1] - lateness - high) if after is None else after,
    )


def _allowed(manifest: Manifest) -> tuple[int, int]:
    """The largest lateness and skew of the run's sources."""
    times = [pin.times for pin in manifest.sources.values()]
    return max((t.lateness for t in times), default=0), max((t.skew for t in times), default=0)


def _frontier(registry: Registry, run: str, stamp: BatchStamp | None) -> int | None:
    """How far a run has read: a batch without rows leaves no stamp, but is in the registry."""
    newest = registry.newest_batch(run)
    found = [min(stamp.frontiers.values())] if stamp is not None and stamp.frontiers else []
    return max([*found, *([newest[1]] if newest is not None else [])], default=None)


def _ours(manifest: Manifest) -> Writer:
    return Writer(manifest.run, None, manifest.code_digest, _lateness(manifest))


def _lateness(manifest: Manifest) -> dict[str, tuple[int, int]]:
    return {name: (pin.times.lateness, pin.times.skew) for name, pin in manifest.sources.items()}


def writer_of(
    run: str,
    stamp: BatchStamp | None,
    known: Mapping[str, Manifest | None],
    reach: tuple[int, int],
    frontier: int | None,
) -> Writer:
    """What is known of a run that wrote the other side."""
    manifest = known[run]
    code = stamp.code if stamp is not None else ""
    if manifest is None:
        return Writer(run, None, code)
    return Writer(
        run,
        _covers(manifest, known, reach, frontier),
        code or manifest.code_digest,
        _lateness(manifest),
    )


def _covers(
    manifest: Manifest,
    known: Mapping[str, Manifest | None],
    reach: tuple[int, int],
    frontier: int | None,
) -> tuple[int, int] | None:
    """The times of output for which the run has read all input; None: it is not known.

    A run that began with its log misses the input before; so far a later run is incomplete. A run
    that goes on for a lost one goes on where that one stood.
    """
    times, first = manifest.times, manifest
    while first.identity.origin.recovers:
        before = known.get(first.identity.origin.recovers)
        if before is None:
            return None
        first = before
    low = first.times.output[0]
    if len(first.times.boundaries) == 1:  # without history
        low = max(low, first.times.boundaries[0] + reach[0] + _allowed(first)[1])
    if frontier is None:
        return None
    lateness, _ = _allowed(manifest)
    read = frontier - reach[1] - lateness
    if times.ends and frontier >= times.boundaries[-1]:
        return low, times.output[1]
    return low, min(times.output[1], read)


def _aside(
    finder: SideFinder,
    others: Iterable[Manifest],
    theirs_read: tuple[int, int],
    rules: Rules,
    span: tuple[int, int] | None,
) -> tuple[tuple[Aside, ...], tuple[str, ...]]:
    """The input rows that went aside on one side only, by cause and source.

    What the other side has not read at all is no difference: neither of the two has counted it.
    """
    ours = finder.manifest
    read_by = (theirs_read, (ours.times.boundaries[0], ours.times.boundaries[-1]))
    run, reach = finder.run_of(ours), reach_of(ours)
    found: list[Aside] = []
    notes: list[str] = []
    lateness, _ = _allowed(ours)
    for dead in (False, True):
        mine = {_table_of(ours, dead)} - {""}
        theirs = {_table_of(other, dead) for other in others} - {""} - mine
        if not mine or not theirs:
            continue
        window = None
        if span is not None:
            window = span[0] - reach[0], span[1] + reach[1] + (lateness if dead else 0)
        read = [_read(run, names, dead, window) for names in (mine, theirs)]
        if any(len(frame) >= _HELD for frame in read):
            notes.append(f"causes are looked for among {_HELD:,} late or dead rows of each side")
        for number, frames in enumerate(one_sided(*read)):
            for frame in frames:
                kept = frame.filter(_ingested_in(read_by[number]))
                found.extend(_by_source(kept, dead, rules, lateness))
    order = [Cause.CLOCK, Cause.DEAD, Cause.LATE]
    return tuple(sorted(found, key=lambda each: order.index(each.cause))), tuple(notes)


def _table_of(manifest: Manifest, dead: bool) -> str:
    return manifest.outputs.dead_table if dead else manifest.outputs.late_table


def _read(
    run: SinkRun, names: Iterable[str], dead: bool, window: tuple[int, int] | None
) -> pl.DataFrame:
    """The rows of these tables that may matter, as many as are held; a missing table is empty."""
    import polars as pl

    parts: list[pl.DataFrame] = [pl.DataFrame(pl.from_arrow(SIDE_SCHEMA.empty_table()))]
    rows = 0
    for batch in _batches(run, names):
        frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch.cast(SIDE_SCHEMA)])))
        if dead:  # of a row at which the code failed, its ingest time may not be known
            frame = frame.with_columns(
                pl.coalesce("ingest_time", "event_time").alias("ingest_time")
            )
        time = pl.col("ingest_time") if dead else pl.coalesce("event_time", "ingest_time")
        frame = frame.with_columns(time.dt.epoch("us").alias(TIME))
        if window is not None:
            frame = frame.filter(pl.col(TIME).is_between(*window))
        parts.append(frame.drop(TIME))
        rows += len(frame)
        if rows >= _HELD:
            break
    return pl.concat(parts)


def _batches(run: SinkRun, names: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for name in sorted(names):
        yield from SideTable(run, name).scan(SIDE_SCHEMA.names, None)


def _ingested_in(span: tuple[int, int]) -> pl.Expr:
    import polars as pl

    at = pl.col("ingest_time").dt.epoch("us")
    return (at >= span[0]) & (at < span[1])


def one_sided(ours: pl.DataFrame, theirs: pl.DataFrame) -> list[list[pl.DataFrame]]:
    """The rows that went aside here and not there, and those that did there and not here.

    A row is known again by its position in the log, or by all that it has, if that is not known.
    """
    import polars as pl

    found: list[list[pl.DataFrame]] = []
    for one, other in ((ours, theirs), (theirs, ours)):
        found.append([])
        is_placed = pl.col("partition").is_not_null() & pl.col("offset").is_not_null()
        for chosen, by in ((is_placed, _POSITION), (~is_placed, _CONTENT)):
            left, right = one.filter(chosen), other.filter(chosen)
            if left.height:
                found[-1].append(left.join(right, on=by, how="anti", nulls_equal=True))
    return found


def _by_source(frame: pl.DataFrame, dead: bool, rules: Rules, lateness: int) -> Iterator[Aside]:
    import polars as pl

    if not frame.height:
        return
    cause = pl.lit(str(Cause.DEAD)) if dead else (
        pl.when(pl.col("reason") == CLOCK).then(pl.lit(str(Cause.CLOCK)))
        .otherwise(pl.lit(str(Cause.LATE)))
    )  # fmt: skip
    time = pl.col("ingest_time") if dead else pl.coalesce("event_time", "ingest_time")
    frame = frame.with_columns(cause.alias("cause"), time.dt.epoch("us").alias(TIME))
    for (name, _), part in frame.partition_by(["cause", "source"], as_dict=True).items():
        keys = _keys_in(part, rules)
        rows = part.select(TIME, *(_member(key, at) for key, at in keys.items()))
        yield Aside(Cause(name), tuple(keys.values()), rows, lateness if dead else 0)


def _member(name: str, at: str) -> pl.Expr:
    """A member of the row's JSON, as text."""
    import polars as pl

    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return pl.col("row").str.json_path_match(f"$['{quoted}']").alias(at)


def _keys_in(part: pl.DataFrame, rules: Rules) -> dict[str, str]:
    """The columns of the key that the input rows have, too: their names, and those in frames."""
    found = {}
    for key in rules.keys if rules.is_keyed else ():
        is_told = pa.types.is_integer(key.kind) or pa.types.is_large_string(key.kind)
        if is_told and part.select(_member(key.name, "m"))["m"].null_count() < len(part):
            found[key.name] = key.at
    return found

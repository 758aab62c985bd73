"""What limits a run, and what is wrong with it: sentences with figures, found in its metrics.

Every finding is a pure function of what is kept of the newest batches and of what is known of the
run now. Of a healthy run there is none. The limits are wide on purpose: a finding that is no
trouble costs more trust than one that comes a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tidemill.jsonvalue import JsonValue
from tidemill.planning.metrics.figures import BatchMetrics, middle
from tidemill.planning.metrics.hours import RunMetrics
from tidemill.planning.metrics.stages import bucket_sums, folds_of
from tidemill.types import show_seconds

_LOOKED_AT = 60
"""The newest batches, which tell how it is now."""
_FEW = 3
"""Of fewer batches nothing can be said that needs a comparison."""


class Cause(StrEnum):
    """What a finding is about. Scripts may rely on these words."""

    WAITING = "waiting"
    RATE = "rate"
    SOURCE = "source"
    CODE = "code"
    FOLD = "fold"
    SINK = "sink"
    COMMIT = "commit"
    SKEW = "skew"
    STATE = "growing state"
    FILES = "small files"
    SMALL = "small slices"
    WIDE = "wide slices"
    LATE = "late rows"
    PARTITION = "partition behind"


@dataclass(frozen=True)
class Finding(JsonValue):
    """One sentence with figures, and what to do."""

    cause: Cause
    text: str
    fix: str
    figures: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``diagnose --json`` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run now, beside its metrics."""

    is_live: bool = False
    rate: int | None = None  # the limit in force, rows per second
    waiting: str | None = None  # why nothing moves, if that is out of the ordinary
    behinds: dict[str, dict[str, int]] = field(default_factory=dict)  # source, partition: µs


@dataclass(frozen=True)
class Look:
    """The newest batches, and what is known of the run."""

    batches: tuple[BatchMetrics, ...]
    facts: RunFacts

    @property
    def rows(self) -> int:
        """All rows read."""
        return sum(batch.rows for batch in self.batches)

    @property
    def working(self) -> float:
        """Seconds by the clock in jobs and commits."""
        return sum(batch.running + batch.committing for batch in self.batches)

    @property
    def waiting(self) -> float:
        """Seconds by the clock between batches."""
        return sum(batch.waiting for batch in self.batches)

    @property
    def tasks(self) -> float:
        """Seconds of all Spark tasks, of the batches of which they are known."""
        return sum(batch.tasks or 0.0 for batch in self.batches)

    def spent(self, stage: str) -> float:
        """The seconds of a stage."""
        return sum(batch.seconds.get(stage, 0.0) for batch in self.batches)


def find_troubles(metrics: RunMetrics, facts: RunFacts) -> list[Finding]:
    """Everything that is wrong, what limits the run most first."""
    look = Look(metrics.batches[-_LOOKED_AT:], facts)
    return [found for find in _FINDERS for found in find(look)]


def _waits(look: Look) -> Iterator[Finding]:
    if look.facts.waiting is not None:
        fix = "'tidemill status' says since when; mend what it names, the run goes on by itself"
        yield Finding(Cause.WAITING, look.facts.waiting, fix)


def _is_limited(look: Look) -> Iterator[Finding]:
    rate, whole = look.facts.rate, look.working + look.waiting
    if rate is None or not whole or look.waiting < 0.2 * whole or look.rows / whole < 0.7 * rate:
        return
    could = look.rows / look.working if look.working else 0.0
    yield Finding(
        Cause.RATE,
        f"the rate of {rate:,} rows/s holds it back: it reads {look.rows / whole:,.0f} rows/s and "
        f"waits {look.waiting / whole:.0%} of the time; without the limit it would read about "
        f"{could:,.0f} rows/s",
        "'tidemill rate RUN' with a higher rate, or with none",
        {"rate": rate, "rows_per_second": look.rows / whole, "waiting": look.waiting / whole},
    )


def _commits_slowly(look: Look) -> Iterator[Finding]:
    usual = middle(batch.committing for batch in look.batches)
    share = sum(batch.committing for batch in look.batches) / (look.working or 1.0)
    if usual >= 1.0 and share >= 0.5:
        yield Finding(
            Cause.COMMIT,
            f"commits take {share:.0%} of the time: {usual:.1f} s each, beside "
            f"{middle(batch.running for batch in look.batches):.1f} s in Spark",
            "wider slices or a longer trigger: make fewer commits; look at the catalog, and at the "
            "number of snapshots and manifests of the table",
            {"seconds": usual, "share": share},
        )


_COSTLY = 100e-6
"""Seconds per row from which a stage is slow: Spark itself needs a few microseconds."""


def _is_slow(look: Look) -> Iterator[Finding]:
    """The stage in which the tasks spend most of their time, if a row costs much there."""
    per_batch = 1.0 * len(look.batches)
    stages = {name for batch in look.batches for name in batch.seconds}
    for stage in sorted(stages - {"committing", "waiting"}):
        spent = look.spent(stage)
        rows = sum(b.out for b in look.batches) if stage == "writing" else look.rows
        if spent < 0.5 * look.tasks or spent < per_batch or not rows:
            continue
        if spent / rows >= _COSTLY:
            share, cost = spent / look.tasks, spent / rows
            cause, what, fix = _slow(stage)
            yield Finding(
                cause,
                f"{what} {share:.0%} of the tasks' time: {cost * 1e6:,.0f} µs for each row",
                fix,
                {"share": share, "seconds_per_row": cost},
            )


def _slow(stage: str) -> tuple[Cause, str, str]:
    if stage == "code":
        return (
            Cause.CODE,
            "the code takes",
            "Python UDFs cost most: use Spark's own functions, or a pandas UDF over whole batches; "
            "'tidemill graph' shows the steps",
        )
    if stage == "reading":
        return (
            Cause.SOURCE,
            "reading takes",
            "look at the storage, or give the run more cores; compact an archive of small files",
        )
    if stage == "writing":
        return (
            Cause.SINK,
            "writing takes",
            "look at the place that is written; fewer partitions make fewer files",
        )
    name = stage.removeprefix("fold ")
    return (
        Cause.FOLD,
        f"the fold {name} takes",
        "aggregate or filter rows before it; a process written in Python costs most",
    )


def _is_skewed(look: Look) -> Iterator[Finding]:
    for fold in folds_of(look.batches):
        if fold.buckets < 2 or fold.largest < 10_000 or fold.largest < 4 * max(fold.median, 1):
            continue
        came = bucket_sums(b.folds[fold.name].rows for b in look.batches if fold.name in b.folds)
        share = fold.largest / sum(came)
        yield Finding(
            Cause.SKEW,
            f"the fold {fold.name} is uneven: bucket {fold.bucket} of {fold.buckets} gets "
            f"{share:.0%} of its rows, {fold.largest / max(fold.median, 1):.0f} times the median",
            "a hot key is in this bucket: filter bots and empty keys before the fold, or aggregate "
            "before it; more buckets do not help with a single key",
            {"bucket": fold.bucket, "share": share, "times": fold.largest / max(fold.median, 1)},
        )


def _grows(look: Look) -> Iterator[Finding]:
    names = dict.fromkeys(name for batch in look.batches for name in batch.folds)
    for name in names:
        sizes = [sum(b.folds[name].state_bytes) for b in look.batches if name in b.folds]
        third = len(sizes) // 3
        if third < 5:
            continue
        first, second, last = (
            sum(sizes[at : at + third]) / third for at in (0, third, len(sizes) - third)
        )
        if last < 10e6 or not first < second < last or last < 1.5 * first:
            continue
        if last - second < 0.5 * (second - first):
            continue  # it levels out, as after a start
        yield Finding(
            Cause.STATE,
            f"the state of {name} grows and does not level out: from {first / 1e6:,.0f} MB to "
            f"{last / 1e6:,.0f} MB within {len(sizes)} batches",
            "say a bound: max_length, within, or a shorter lateness; 'tidemill state RUN' shows "
            "what is kept",
            {"before": first, "now": last},
        )


def _writes_small(look: Look) -> Iterator[Finding]:
    for name in dict.fromkeys(name for batch in look.batches for name in batch.writing):
        found = [batch.writing[name] for batch in look.batches if name in batch.writing]
        files, size = sum(each.files for each in found), sum(each.bytes for each in found)
        if files < 100 or not size or size / files > 50_000 or files < 4 * len(found):
            continue
        yield Finding(
            Cause.FILES,
            f"the output {name} gets small files: {files:,} of {size / files / 1e3:,.1f} kB each, "
            f"{files / len(found):.0f} for each batch",
            "wider slices or a longer trigger, fewer shuffle partitions, or fewer partitions of "
            "the table",
            {"files": files, "bytes_per_file": size / files},
        )


def _slices_badly(look: Look) -> Iterator[Finding]:
    usual = middle(batch.running for batch in look.batches)
    rows = middle(batch.rows for batch in look.batches)
    if usual >= 300:
        yield Finding(
            Cause.WIDE,
            f"slices are wide: one takes {show_seconds(usual)}, with {rows:,.0f} rows: a stop "
            "waits for its end, and a failure repeats it",
            "give --slice or --slice-rows a smaller value",
            {"seconds": usual, "rows": rows},
        )
    is_many = len(look.batches) >= 20 and not look.facts.is_live and look.facts.rate is None
    if is_many and 0 < rows < 5_000 and usual >= 0.2:
        yield Finding(
            Cause.SMALL,
            f"slices are small: {rows:,.0f} rows each, for which Spark needs {usual:.1f} s",
            "give --slice or --slice-rows a larger value, or leave it out",
            {"seconds": usual, "rows": rows},
        )


def _comes_late(look: Look) -> Iterator[Finding]:
    newest = max(1, len(look.batches) // 4)
    before, now = look.batches[:-newest], look.batches[-newest:]
    if len(before) < _FEW:
        return
    late = sum(batch.late for batch in now)
    share = late / (sum(batch.rows for batch in now) or 1)
    usual = sum(batch.late for batch in before) / (sum(batch.rows for batch in before) or 1)
    if late >= 100 and share >= 0.01 and share >= 5 * usual:
        yield Finding(
            Cause.LATE,
            f"more rows come late: {late:,}, {share:.1%} of the last {len(now)} batches, against "
            f"{usual:.2%} before",
            "'tidemill late' says how late, and which lateness would have kept them",
            {"share": share, "before": usual},
        )


def _stands(look: Look) -> Iterator[Finding]:
    for source, behinds in look.facts.behinds.items():
        if len(behinds) < 2:
            continue
        number, most = max(behinds.items(), key=lambda each: each[1])
        others = middle(behind for name, behind in behinds.items() if name != number)
        if most >= 60e6 and most >= 4 * others:
            yield Finding(
                Cause.PARTITION,
                f"partition {number} of {source} is {show_seconds(most / 1e6)} behind, the others "
                f"{show_seconds(others / 1e6)}: it holds the watermark of all back",
                "look at this partition's leader and at what writes to it",
                {"behind": most / 1e6, "others": others / 1e6},
            )


_FINDERS: tuple[Callable[[Look], Iterator[Finding]], ...] = (
    _waits, _is_limited, _stands, _commits_slowly, _is_slow, _is_skewed, _grows, _comes_late,
    _slices_badly, _writes_small,
)  # fmt: skip

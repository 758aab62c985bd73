"""A run that goes on for a lost one gives every row once: a model of Spark, random runs and deaths.

The model knows what the rule rests on: which batches Spark makes (with rows, and without), with
which watermark each runs, and what Spark forgets when it is restarted.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tidemill.connectors.sinks.iceberg.commit import BatchStamp
from tidemill.errors import PlanError
from tidemill.planning.cuts import Cut, Delays, repeats_watermarks, way_to
from tidemill.planning.offsets import BatchOffsets
from tidemill.runtime.starts.recovery import cuts_of

MS = 1_000
TABLES = ("rows", "windows", "both", "late")  # in the order of their commits
OUTPUTS = {"rows", "windows", "both"}
BEGIN, END = 100, 400  # ms of ingest time


def items(table, delays, old, new):
    """What a table gets when a run goes from one place to another: rows, and windows that close."""
    (was, closed), (now, closing) = old, new
    found = set()
    if table != "windows":
        for source in now:
            found |= {(source, at) for at in range(was[source] // MS, now[source] // MS)}
    if table in ("windows", "both"):
        found |= {("window", at) for at in range(closed + 1, closing + 1)}
    return found


@dataclass
class Spark:
    """One query: which batch comes next, and with which watermark."""

    delays: Delays
    at: dict[str, int]
    watermark: int = 0  # of the next batch
    closed: int = 0  # of the last batch
    allowed: dict[str, int] = field(default_factory=dict)
    has_run: bool = False  # since it was started
    entries: dict[int, BatchOffsets] = field(default_factory=dict)

    def restart(self):
        self.allowed, self.has_run = {}, False

    def batch(self, moves):
        """One batch, if there are rows, or windows to close; returns its number."""
        moved = {s: to for s, to in moves.items() if to > self.at[s]}
        if not moved and not (self.has_run and self.watermark > self.closed):
            return None
        number = len(self.entries)
        self.run(number, {**self.at, **moved}, self.watermark)
        return number

    def run(self, number, ends, watermark):
        moved = {s for s in ends if ends[s] > self.at[s]}
        self.at, self.closed, self.has_run = dict(ends), watermark, True
        self.entries[number] = BatchOffsets({s: (end,) for s, end in ends.items()}, watermark, {})
        self.allowed |= {s: self.delays.allowed(s, ends[s]) for s in moved}
        if len(self.allowed) == len(ends):
            self.watermark = max(watermark, *[min(self.allowed.values())])


def advance(chance, spark, limits, room=40):
    """Every source may go on, as far as something holds it."""
    moves = {}
    for source, at in spark.at.items():
        step = chance.choice([0, 0, 3, 7, 20, room]) * MS
        moves[source] = min(at + step, limits[source])
    return moves


def lose(chance, delays, tables, restarts):
    """A run that dies in a batch, between two tables; the stamps, and whether its mark lagged."""
    begun = dict.fromkeys(delays.lateness, BEGIN * MS)
    spark, stamps = Spark(delays, dict(begun)), {}
    low = delays.watermark(begun)
    place, was = (begun, low), 0
    last = chance.randint(0, 8)
    for _ in range(60):
        if restarts and chance.random() < 0.5:
            spark.restart()
        before = dict(spark.at)
        number = spark.batch(advance(chance, spark, dict.fromkeys(begun, 300 * MS), 15))
        if number is None:
            continue
        new = (dict(spark.at), max(spark.closed, low))
        stamp = BatchStamp(
            "r", number, new[0], spark.closed, before=before, closed=(max(was, low), new[1])
        )
        dies = number >= last
        count = chance.randint(0, len(TABLES)) if dies else len(TABLES)
        for table in TABLES[:count]:
            found = items(table, delays, place, new)
            if table == "late":
                found = {item for item in found if item[1] % 3 == 0}
            if found:
                assert not tables[table] & found
                tables[table] |= found
                stamps[table] = stamp
        place, was = new, spark.closed
        if dies:
            break
    return stamps


@dataclass
class Recovery:
    """The run that goes on: it reads history in slices of its own, and discards what was given."""

    spark: Spark
    cuts: dict
    steps: tuple
    whole: dict
    tables: dict
    settled: int = 0
    given: dict = field(default_factory=dict)

    def limits(self):
        left = self.steps[self.settled :]
        return left[0] if left else dict.fromkeys(self.spark.at, END * MS)

    def go(self, chance):
        limits = self.limits()
        wanted = advance(chance, self.spark, limits)
        moves = {source: self.cut(source, to, limits[source]) for source, to in wanted.items()}
        if not self.take(moves) and self.spark.at == limits:
            self.settled += 1

    def cut(self, source, to, limit):
        """What must be one slice is taken whole, or not at all."""
        at = self.spark.at[source]
        for low, high in self.whole.get(source, []):
            if at < low < to:
                return low
            if low <= at < high and to > at:
                return high if limit >= high else at
        return to

    def take(self, moves):
        place = dict(self.spark.at), self.spark.closed
        number = self.spark.batch(moves)
        if number is not None:
            self.commit(number, place)
        return number is not None

    def finish(self):
        """All that is left, in as few batches as can be; last a slice of all sources."""
        while self.settled < len(self.steps):
            limits = self.limits()
            moves = {source: self.cut(source, to, to) for source, to in limits.items()}
            if not self.take(moves):
                assert self.spark.at == limits
                self.settled += 1
        for end in (END, END + 1):
            self.take(dict.fromkeys(self.spark.at, end * MS))
        self.take({})

    def commit(self, number, place):
        low = self.spark.delays.watermark(dict.fromkeys(self.spark.at, BEGIN * MS))
        new = dict(self.spark.at), max(self.spark.closed, low)
        place = place[0], max(place[1], low)
        entry = self.spark.entries[number]
        for table, cut in self.cuts.items():
            found = items(table, self.spark.delays, place, new)
            if table == "late":
                found = {
                    item
                    for item in found
                    if item[1] % 3 == 0 and item[1] * MS >= cut.frontiers[item[0]]
                }
            elif cut.includes(entry):
                found = set()
            assert not self.tables[table] & found, f"{table} has it twice"
            self.tables[table] |= found

    def die(self):
        """Some of the last batches run again, as `prepare_start` chooses; the tables know them."""
        spark, entries = self.spark, dict(self.spark.entries)
        start = {source: (at,) for source, at in self.begin.items()}
        known = {-1: BatchOffsets(start, 0, {}), **entries}
        if not entries:
            return
        possible = [
            n
            for n in entries
            if repeats_watermarks(known, n, spark.delays, whole=self.settled < len(self.steps))
        ]
        if self.settled >= len(self.steps):
            spark.restart()
            return
        first = max(possible)
        spark.restart()
        spark.at = {source: found[0] for source, found in known[first - 1].frontiers.items()}
        spark.watermark = entries[first].watermark
        for number in range(first, max(entries) + 1):
            ends = entries[number].slowest()
            assert entries[number].watermark == spark.watermark, "a repeat closes the same windows"
            if number > first and ends == spark.at:
                assert spark.has_run
                assert spark.watermark > spark.closed, "Spark makes the batch again"
            spark.run(number, ends, spark.watermark)


@pytest.mark.parametrize("restarts", [False, True], ids=["steady", "restarted"])
@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_recovered_run_gives_every_row_once(restarts, seed):
    chance = Random(seed)
    names = chance.choice([("a",), ("a", "b"), ("a", "b", "c")])
    lateness = {name: chance.choice([0, 5, 30]) * MS for name in names}
    delays = Delays(lateness, chance.choice([0, 4]) * MS)
    tables = {name: set() for name in TABLES}
    stamps = lose(chance, delays, tables, restarts)
    if not stamps:
        return
    cuts = cuts_of(stamps, TABLES, OUTPUTS)
    try:
        way = way_to({cuts[name].order: cuts[name] for name in OUTPUTS}.values(), delays)
    except PlanError:
        newest = max(stamps.values(), key=lambda stamp: stamp.batch)
        assert newest.closed[1] < delays.watermark(newest.before), "not all sources had begun again"
        assert len(names) > 1
        event("refused")
        return
    begin = min(BEGIN * MS, *(min(step.values()) - MS for step in way.steps))
    run = Recovery(Spark(delays, dict.fromkeys(names, begin)), cuts, way.steps, way.whole, tables)
    run.begin = dict.fromkeys(names, begin)
    for _ in range(40):
        if chance.randint(0, 9) == 0:
            run.die()
        run.go(chance)
    run.finish()
    begun = dict.fromkeys(names, BEGIN * MS)
    ends = dict.fromkeys(names, (END + 1) * MS)
    for name, found in tables.items():
        start = (begun, delays.watermark(begun))
        expected = items(name, delays, start, (ends, delays.watermark(ends)))
        if name == "late":
            expected = {item for item in expected if item[1] % 3 == 0}
        assert found == expected, name


def test_a_cut_has_what_its_frontiers_and_its_watermark_allow():
    cut = Cut({"a": 20, "b": 25}, 7)
    assert cut.includes(BatchOffsets({"a": (20,), "b": (25,)}, 7, {}))
    assert cut.includes(BatchOffsets({"a": (10, 20), "b": (15,)}, 6, {}))
    assert not cut.includes(BatchOffsets({"a": (20,), "b": (25,)}, 8, {}))
    assert not cut.includes(BatchOffsets({"a": (20, 30), "b": (25,)}, 7, {}))

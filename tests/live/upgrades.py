"""One upgrade of a small run: old and new code, where it is killed, and what must come out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.live.meadow import LATENESS, Meadow, counted
from tests.live.upgrader import (
    DRIVING,
    NAME,
    PREPARING,
    SETTLING,
    Upgraders,
    die_lightly,
    upgraded,
)
from tidemill.errors import RunError
from tidemill.planning.upgrade import Way
from tidemill.project import RunResult, Until
from tidemill.runfolder.folder import JVM, RunFolder
from tidemill.runfolder.succession import taken_by
from tidemill.runtime.registry import RunState
from tidemill.testing import assert_same_rows
from tidemill.types import SECOND

HEAD = "from pyspark.sql import functions as F\nfrom tidemill import pipeline, windows\n"


def code(
    every: int,
    agg: dict[str, Any],
    before: str = "",
    after: str = '.withColumn("most", F.lit(-1).cast("bigint"))',
) -> str:
    return f"""{HEAD}
@pipeline
def pipeline(plays):
    fold = windows(key="key", every="{every} s", agg={agg!r})
    found = plays{before}.transform(fold){after}
    return found.select("key", "window_start", "n", "sum", "most")
"""


AGG: dict[str, Any] = {"n": "count", "sum": ("sum", "n")}
NARROW, WIDE = 2, 3  # seconds
OLD = code(NARROW, AGG)
MORE = code(NARROW, {**AGG, "most": ("max", "n")}, before='.where("n >= 0")', after="")
WIDER = code(WIDE, AGG)
NATIVE = f"""{HEAD}
@pipeline
def pipeline(plays):
    found = plays.groupBy("key", F.window("event_ts", "{WIDE} seconds").alias("w")).agg(
        F.count("*").alias("n"), F.sum("n").alias("sum")
    )
    most = F.lit(-1).cast("bigint").alias("most")
    return found.select("key", F.col("w.start").alias("window_start"), "n", "sum", most)
"""
BROKEN = OLD.replace('F.lit(-1).cast("bigint")', 'F.raise_error(F.lit("no")).cast("bigint")')
COLUMNS = ("key", "window_start", "n", "sum")


def closing(seconds: float = 2.0) -> Until:
    return Until(moment=datetime.now(UTC) + timedelta(seconds=seconds))


def begun(folder: Path, spark: Any, seed: int) -> tuple[Meadow, RunResult]:
    """A run of the old code that has read all history and stopped, and rows that it has not."""
    meadow = Meadow(folder, OLD, seed, time="window_start")
    options = {"begin": "earliest", "name": NAME, "until": closing(), "spark": spark}
    old = meadow.project.run("pipeline", **options)
    meadow.grow(40)
    return meadow, old


def watermark(frontier: int | None) -> int:
    assert frontier is not None
    return (frontier - SECOND) // SECOND


def check(meadow: Meadow, old: RunResult, result: RunResult, width: int) -> None:
    """Up to the switch the old code's windows, from there on those of the new one, to the row."""
    switch, end = watermark(old.totals.frontier), watermark(result.totals.frontier)
    found = meadow.rows("marts.output")
    expected = [
        *counted(meadow.log(), NARROW, 0, switch),
        *counted(meadow.log(), width, switch, end),
    ]
    assert_same_rows([{n: row[n] for n in COLUMNS} for row in found], expected, "both codes")
    ingested = meadow.rows("logs.plays")
    late = [row for row in ingested if (row["ingest_ts"] - row["event_ts"]) > LATENESS]
    assert len(meadow.rows("marts.output__late")) == len(late)
    assert meadow.project.registry.get(NAME).run == result.run
    assert meadow.project.registry.get(old.run).state is RunState.CANCELLED


NEW = {"carried": (MORE, NARROW), "rebuilt": (WIDER, WIDE), "rebuilt in Spark": (NATIVE, WIDE)}
RESUMED = "the old run resumed"
"""No kill: the old code is put back and the old run goes on for a moment, then the new code is."""
_LEAVES_A_RUN = ("known", "written", "discarded", "batch")


@dataclass(frozen=True)
class Play:
    """One upgrade that is killed at these places, in their order, and given again each time."""

    kind: str
    places: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, seed: int) -> Play:
        dice = random.Random(seed)
        kind = dice.choice(list(NEW))
        absent = "discarded" if kind == "carried" else "state"
        early = [place for place in (*PREPARING, *DRIVING[:2], RESUMED) if place != absent]
        places = list[str]()
        for _ in range(dice.randrange(5)):
            can_give_up = bool(places) and places[-1] in _LEAVES_A_RUN
            places.append(dice.choice([one for one in early if one != "given up" or can_give_up]))
        if dice.random() < 0.6:
            places += ["taken", *(place for place in SETTLING if dice.random() < 0.5)]
        if dice.random() < 0.5:
            places.append("committed")
        return cls(kind, tuple(places), seed)

    def __str__(self) -> str:
        return f"{self.kind}; killed: {', '.join(self.places) or 'never'}"

    def play(self, folder: Path, upgraders: Upgraders, spark: Any) -> None:
        """Nobody sees it in the rows."""
        new, width = NEW[self.kind]
        left = sum(place in DRIVING for place in self.places)
        upgraders.prepare(min(2, left))
        meadow, old = begun(folder, spark, self.seed)
        stand = _Stand(meadow, RunFolder.of(meadow.project.loaded.home, old.run), new)
        stand.put_new_code()
        plan = meadow.project.carry(NAME).plan(spark=spark)  # the analysis is kept
        assert (plan.way is Way.CARRIED) == (self.kind == "carried")
        for is_light, places in groupby(self.places, lambda place: place in PREPARING + SETTLING):
            names = list(places)
            if is_light:
                die_lightly(stand.config, names)
                stand.check(names[-1])
                continue
            for place in names:
                if place == RESUMED:
                    stand.resume_old(spark)
                else:
                    left -= 1
                    stand.die_driving(place, upgraders, standby=min(2, left))
                stand.check(place)
        result = upgraded(str(stand.config), 3, spark)
        check(meadow, meadow.project.status(old.run), result, width)
        with pytest.raises(RunError, match=f"the run {old.run} was upgraded: {result.run} goes on"):
            meadow.project.resume(old.run, spark=spark)


@dataclass(frozen=True)
class _Stand:
    """A run that is to be upgraded, and the project in which it is."""

    meadow: Meadow
    old: RunFolder
    new: str

    @property
    def config(self) -> Path:
        return self.meadow.folder / "tidemill.yaml"

    def put_new_code(self) -> None:
        self.meadow.write(self.new, buckets=4)
        # The old run was driven with this process's session, for whose end others would wait.
        (self.old.path / JVM).unlink()

    def resume_old(self, spark: Any) -> None:
        self.meadow.write(OLD)
        before = self.meadow.project.registry.totals(self.run).batches
        result = self.meadow.project.resume(NAME, until=closing(1), spark=spark)
        assert result.run == self.run
        assert result.totals.batches > before
        self.put_new_code()

    def die_driving(self, place: str, upgraders: Upgraders, *, standby: int) -> None:
        driver = upgraders.take()
        upgraders.prepare(standby)
        try:
            driver.tell(config=str(self.config), die=place, seconds=120)
            answer = driver.answer(300)
        finally:
            driver.end()
        assert answer is None, f"it was to die at {place}: {answer}"
        self.meadow.grow(10)

    def check(self, place: str) -> None:
        """Who goes on is decided by one file, before the new run gives its first row.

        The registry knows it a moment later.
        """
        is_taken = place in ("taken", *SETTLING, "committed")
        assert (taken_by(self.old) is not None) == is_taken, place
        registry, meadow = self.meadow.project.registry, self.meadow
        is_over = registry.get(self.run).state is RunState.CANCELLED
        assert is_over == (is_taken and place != "taken"), place
        end = watermark(registry.totals(self.run).frontier)
        more = len(meadow.rows("marts.output")) - len(counted(meadow.log(), NARROW, 0, end))
        assert more > 0 if place == "committed" else more == 0, (place, more)

    @property
    def run(self) -> str:
        return self.old.path.name

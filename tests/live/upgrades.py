"""One upgrade of a small run: old and new code, where it is killed, and what must come out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.live.meadow import LATENESS, Meadow, counted
from tests.live.upgrader import DRIVING, NAME, PREPARING, Upgraders, die_preparing, upgraded
from tidemill.planning.upgrade import Way
from tidemill.project import RunResult, Until
from tidemill.runfolder.folder import JVM, RunFolder
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
        early = [place for place in PREPARING if place != "state" or kind == "carried"]
        places = (
            *dice.choices(early, k=dice.randrange(3)),
            *["batch"] * dice.randrange(3),
            *(place for place in DRIVING[1:] if dice.random() < 0.5),
        )
        return cls(kind, places, seed)

    def __str__(self) -> str:
        return f"{self.kind}; killed: {', '.join(self.places) or 'never'}"

    def play(self, folder: Path, upgraders: Upgraders, spark: Any) -> None:
        """Nobody sees it in the rows."""
        new, width = NEW[self.kind]
        upgraders.prepare(2)
        meadow, old = begun(folder, spark, self.seed)
        meadow.write(new, buckets=4)
        config = meadow.folder / "tidemill.yaml"
        folder_of_old = RunFolder.of(meadow.project.loaded.home, old.run).path
        (folder_of_old / JVM).unlink()  # this process's session, which other processes wait for
        plan = meadow.project.carry(NAME).plan(spark=spark)  # the analysis is kept
        assert (plan.way is Way.CARRIED) == (self.kind == "carried")
        driving = [place for place in self.places if place in DRIVING]
        for place in self.places:
            if place in PREPARING:
                die_preparing(config, place, rebuild=False)
        for left, place in zip(range(len(driving) - 1, -1, -1), driving, strict=True):
            driver = upgraders.take()
            upgraders.prepare(min(2, left))
            driver.tell(config=str(config), die=place, seconds=60)
            answer = driver.answer(180)
            assert answer is None, f"it was to die at {place}: {answer}"
            driver.end()
            meadow.grow(10)
            is_over = meadow.project.registry.get(old.run).state is RunState.CANCELLED
            assert is_over == (place in DRIVING[2:])
        check(meadow, old, upgraded(str(config), 6, spark), width)

"""``make torture``: kill drivers at random moments with new seeds; report in docs/reliability.md.

``python -m tests.torture [--kills N] [--folds N] [--seams N] [--upgrades N] [--publishes N]
[--faults N|A-B|all] [--seed S]``: the seed is printed, so a failure can be repeated. A campaign of
0 is left out, and its section stays as it is. Of the combinations of faults N are drawn by the
seed, or those with the numbers A to B (or several such ranges, with commas), or all; the lines of
the others stay as they are.
"""

import argparse
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.campaign import Campaign, Combination, all_combinations
from tests.faults.report import TITLE, line, section
from tests.jvm import start_light
from tests.kafka.broker import Broker
from tests.live.seam import Play, Scenario, SeamYard
from tests.live.upgrader import Upgraders
from tests.live.upgrades import Play as Upgrading
from tests.live.victim import Victims
from tests.reliability.scenario import RANGE, Yard, random_kills, worker_kills
from tests.report import kept_sections, when, write_sections
from tests.review.race import Race
from tidemill.config.spark import SparkConfig
from tidemill.runtime.spark.session import build_session

_LANES = 2
"""So many combinations of faults are played at a time: most of one is waiting."""
_SEAM = """\
Every line is one run from history into the live log of a real Kafka broker, with a fold or with
Spark's own window. The seed chooses how the log's partitions are weighted (one of 0 stays
empty), how far the archive is behind it, where the driver is killed with `kill -9` (in history,
around a decision to read on or to switch, at a step of a live batch; the run is then resumed by
another process), what happens to the broker while the run is live, and how many rows a live slice
may have. Output, late and dead rows are compared with a count over the log in plain Python, and
with a backfill of the archive when it has everything."""

_UPGRADES = """\
Every line is one upgrade of a live run over a table that grows, with state that is carried or made
again from the archive. The process that upgrades is killed with `kill -9` at the steps that the
seed chooses, and the same command is given again. Before the decision the seed may also put the old
code back: the old run goes on for a moment, and is upgraded then. After each kill it is checked who
goes on, and that the new run has given no row before it was decided. The rows are compared with a
count over the log in plain Python: the old code's windows up to the switch, the new code's from
there on."""


_PUBLISHING = """\
Every line is one table into which a shadow is published and from which it is taken back, up to four
times, while other processes commit live rows, compact files and expire snapshots with their files.
The process that publishes is killed with `kill -9` at steps that the seed chooses, and another
one goes on. After every kill the range is wholly as before or wholly as published; in the end
every row outside of it is there once, no file is referred to twice, and none that any snapshot
names is gone."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=10, help="how many disturbed runs")
    arguments.add_argument("--folds", type=int, default=10, help="runs of folds, of each kind")
    arguments.add_argument("--seams", type=int, default=50, help="runs into the live log")
    arguments.add_argument("--upgrades", type=int, default=20, help="upgrades of live runs")
    arguments.add_argument("--faults", default="all", help="combinations of step, fault and mode")
    arguments.add_argument("--publishes", type=int, default=200, help="races of publish and revert")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = arguments.parse_args()
    start_light()
    print(f"seed {given.seed}", flush=True)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for title, pipeline, disturb, count in (
            ("Drivers", "plays_per_show", random_kills, given.kills),
            ("Drivers of folds", "viewing", random_kills, given.folds),
            ("Python workers of folds", "viewing", worker_kills, given.folds),
        ):
            if not count:
                continue
            yard = Yard.make(Path(folder) / title.replace(" ", "_"), pipeline)
            seeds = range(given.seed, given.seed + count)
            failures += campaign(yard, title, disturb, seeds)
        if given.seams:
            seeds = range(given.seed, given.seed + given.seams)
            failures += seam_campaign(Path(folder), seeds)
        if given.publishes:
            seeds = range(given.seed, given.seed + given.publishes)
            failures += publish_campaign(Path(folder), seeds)
        if given.upgrades:
            seeds = range(given.seed, given.seed + given.upgrades)
            failures += upgrade_campaign(Path(folder), seeds)
        chosen = chosen_faults(given.faults, given.seed)
        if chosen:
            failures += fault_campaign(Path(folder), chosen)
    print(f"{failures} failed")
    raise SystemExit(1 if failures else 0)


def campaign(
    yard: Yard,
    title: str,
    disturb: Callable[[Yard, int], tuple[str, list[str]]],
    seeds: range,
) -> int:
    """An undisturbed run, then one disturbed run for every seed; returns how many failed."""
    began = time.monotonic()
    first = yard.run("backfill", yard.pipeline, *RANGE)
    calm = time.monotonic() - began
    expected = yard.tables(str(first["run"]))
    about = (
        f"An undisturbed run takes {calm:.0f} s, reads {expected.rows['in']:,} rows and writes "
        f"{expected.rows['out']:,}."
    )
    lines, failures = list[str](), 0
    for seed in seeds:
        began = time.monotonic()
        try:
            run, story = disturb(yard, seed)
            same = yard.tables(run) == expected
            what = "; ".join(story) or "ended before the kill"
        except AssertionError as error:
            same, what = False, f"error: {str(error).splitlines()[0][:120]}"
        failures += not same
        verdict = "equal" if same else "**DIFFERENT**"
        lines.append(f"| {seed} | {what} | {time.monotonic() - began:.0f} s | {verdict} |")
        _tell(title, about, lines, failures)
    return failures


def seam_campaign(folder: Path, seeds: range) -> int:
    """One run into the live log for every seed; returns how many failed."""
    config = SparkConfig(master="local[2]", memory="2g")
    spark = build_session(config, 2, "torture", log=folder / "spark.log")
    victims = Victims(folder)
    lines, failures = list[str](), 0
    with Broker(folder / "kafka") as broker:
        for seed in seeds:
            began, name = time.monotonic(), f"seam{seed}"
            yard = SeamYard(folder / name, broker, name, spark)
            play = Play(Scenario.of(seed), yard, victims)
            try:
                play.check(play.play())
                verdict = "equal"
            except Exception as error:
                failures += 1
                verdict = f"**DIFFERENT**: {str(error).splitlines()[0][:120]}"
            took = time.monotonic() - began
            lines.append(f"| {seed} | {play.scenario} | {took:.0f} s | {verdict} |")
            _tell("The seam", _SEAM, lines, failures)
    victims.end()
    spark.stop()
    return failures


def publish_campaign(folder: Path, seeds: range) -> int:
    """One race for every seed; returns how many failed."""
    lines, failures = list[str](), 0

    def play(seed: int) -> tuple[int, str, bool, float]:
        began = time.monotonic()
        try:
            told, held = Race(folder / f"race{seed}", seed).run(), True
        except Exception as error:
            told, held = f"error: {str(error).splitlines()[0][:120]}", False
        shutil.rmtree(folder / f"race{seed}", ignore_errors=True)
        return seed, told, held, time.monotonic() - began

    with ThreadPoolExecutor(_LANES + 1) as lanes:
        for seed, told, held, took in lanes.map(play, seeds):
            failures += not held
            verdict = "equal" if held else "**DIFFERENT**"
            lines.append(f"| {seed} | {told} | {took:.0f} s | {verdict} |")
            _tell("Publishing", _PUBLISHING, lines, failures)
    return failures


def upgrade_campaign(folder: Path, seeds: range) -> int:
    """One upgrade of a live run for every seed; returns how many failed."""
    config = SparkConfig(master="local[2]", memory="2g")
    spark = build_session(config, 2, "torture", log=folder / "spark.log")
    upgraders = Upgraders(folder / "upgraders")
    lines, failures = list[str](), 0
    for seed in seeds:
        began, play = time.monotonic(), Upgrading.of(seed)
        try:
            play.play(folder / f"upgrade{seed}", upgraders, spark)
            verdict = "equal"
        except Exception as error:
            failures += 1
            verdict = f"**DIFFERENT**: {repr(error).splitlines()[0][:120]}"
        shutil.rmtree(folder / f"upgrade{seed}", ignore_errors=True)
        took = time.monotonic() - began
        lines.append(f"| {seed} | {play} | {took:.0f} s | {verdict} |")
        _tell("Upgrades", _UPGRADES, lines, failures)
    upgraders.end()
    spark.stop()
    return failures


def chosen_faults(text: str, seed: int) -> list[Combination]:
    """All combinations, ranges of their numbers, or so many of them."""
    known = all_combinations()
    if text == "all":
        return known
    if "-" in text:
        pairs = [part.split("-") for part in text.split(",")]
        return [one for low, high in pairs for one in known[int(low) : int(high) + 1]]
    drawn = random.Random(seed).sample(known, min(int(text), len(known)))
    return sorted(drawn, key=lambda combination: combination.number)


def fault_campaign(folder: Path, chosen: list[Combination]) -> int:
    """Every chosen combination once; returns how many failed."""
    known = all_combinations()
    lines = {number: old for number, old in _old_lines(TITLE).items() if number < len(known)}
    failures = 0
    with Broker(folder / "faults" / "kafka") as broker:
        campaign = Campaign(folder / "faults", broker, "faults")
        try:
            if campaign.missing:
                raise SystemExit(f"catalogs cannot be had: {campaign.missing}")
            # Threads that live to the end: a driver ends with the thread that started it.
            with ThreadPoolExecutor(_LANES) as lanes:
                for outcome in lanes.map(campaign.play, chosen):
                    failures += not outcome.is_good
                    number = outcome.combination.number
                    lines[number] = line(outcome)
                    print(lines[number], flush=True)
                    write_sections({TITLE: section(lines, when())})
        finally:
            campaign.end()
    return failures


def _old_lines(title: str) -> dict[int, str]:
    """The lines of an earlier report that begin with a number."""
    found = re.findall(r"^\| (\d+) (\|.*\|)$", kept_sections().get(title, ""), re.MULTILINE)
    return {int(number): f"| {number} {rest}" for number, rest in found}


def _tell(title: str, about: str, lines: list[str], failures: int) -> None:
    """Print the last line and write the report: a campaign takes long, and may be cut short."""
    print(lines[-1], flush=True)
    write_sections({title: _section(title, about, lines, failures)})


def _section(title: str, about: str, lines: list[str], failures: int) -> str:
    head = [
        f"## {title}",
        "",
        f"{about} **{len(lines) - failures} of {len(lines)} equal** ({when()}).",
        "",
        "| seed | what happened | took | result |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    main()

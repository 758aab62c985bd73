"""Run every comparison, print the table, write docs/performance.md.

Contestants run one after the other in processes of their own, interleaved and repeated; figures
are medians.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import first_hour, folds, live, state
from bench.layer import CONTESTANTS
from tidemill.runtime.spark.classes import adopt_draft, find_archive
from tidemill.runtime.spark.session import find_java

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "performance.md"
MARK = "<!-- figures below are written by `make bench` -->"


def run(module: str, *arguments: str) -> dict[str, Any]:
    """One contestant in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def share_classes(rows: int) -> None:
    """As after a user's first run: run once unmeasured if none has left its classes yet."""
    archive = find_archive(*find_java())
    if not archive.exists():
        print("a first run, which keeps the classes of its JVM", flush=True)
        run("bench.layer", "tidemill", str(rows))
    deadline = time.monotonic() + 60
    while not archive.exists() and not adopt_draft(archive, finished=5):
        if time.monotonic() > deadline:
            raise SystemExit(f"the first run has left no classes in {archive.parent}")
        time.sleep(1)


def layer_tax(rows: int, repeats: int) -> list[str]:
    """Tidemill beside Spark's own file stream."""
    share_classes(rows)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for number in range(repeats):
        for name in CONTESTANTS:
            print(f"layer tax {number + 1}/{repeats}: {name}", flush=True)
            found[name].append(run("bench.layer", name, str(rows)))

    def median(name: str, key: str) -> float:
        return statistics.median(value[key] for value in found[name])

    def steady(name: str) -> float:
        return median(name, "steady rows") / median(name, "steady")

    ours, *others = CONTESTANTS
    lines = [
        "## Layer tax: a 10-minute window, replayed",
        "",
        f"{rows:,} rows in 24 hourly files, 8 batches, {repeats} interleaved repeats, medians. "
        "Total: from starting Spark to the last commit. Steady: without the first batch.",
        "",
        "| | total | first batch after | steady | rows out |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {median(name, 'total'):.1f} s | {median(name, 'first'):.1f} s | "
        f"{steady(name):,.0f} rows/s | {median(name, 'out'):,.0f} |"
        for name in CONTESTANTS
    ]
    for theirs in others:
        total = median(theirs, "total") / median(ours, "total")
        pace = steady(ours) / steady(theirs)
        target = " (target ≥ 0.9)" if theirs == others[0] else ""
        lines.append(f"| **to {theirs}**{target} | **{total:.2f}** | | **{pace:.2f}** | |")
    return [
        *lines,
        "",
        "Spark's file stream leaves the windows of the last minutes open; Tidemill closes them. It "
        "gets our on-time rule as a filter, so that both keep the same rows. Our JVM: with the "
        "options that Tidemill gives it (classes shared between runs, less compiling); otherwise "
        "the JVM is as Spark starts it. All other settings are the same.",
    ]


PAIRS = (
    ("tidemill sessions", "spark batch session_window", 1.2),
    ("tidemill sessions", "spark streaming session_window", 8.0),
    ("tidemill sessions", "spark transformWithState", 50.0),
    ("tidemill process", "spark transformWithState", 25.0),
    ("tidemill attribute", "spark stream-stream join", 3.0),
    ("tidemill deduplicate", "spark streaming dropDuplicates", 1.0),
    ("tidemill windows", "spark streaming window", 1.0),
)
"""Ours, theirs, and how many times as fast ours should be."""
OWN_CHOICE = {"tidemill deduplicate": {"view_seconds"}}
"""Columns that may differ: we keep a key's first row in event time, Spark one that came first."""


def fold_speed(rows: int, repeats: int) -> list[str]:
    """Folds beside Spark's own operators; outputs of one size must be equal."""
    small = {
        "spark transformWithState": folds.SMALL,
        "tidemill process": rows // 5,
        "tidemill attribute": rows // 4,
        "spark stream-stream join": rows // 4,
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in folds.CONTESTANTS}
    for number in range(repeats):
        for name in folds.CONTESTANTS:
            print(f"folds {number + 1}/{repeats}: {name}", flush=True)
            found[name].append(run("bench.folds", name, str(small.get(name, rows))))
            print(f"    {found[name][-1]}", flush=True)

    def pace(name: str) -> float:
        return statistics.median(each["rows"] / each["seconds"] for each in found[name])

    lines = [
        "## Folds",
        "",
        f"{rows:,} rows ({folds.SMALL:,} for transformWithState, a fifth for process, a quarter "
        f"for attribute and the join), 8 batches, {repeats} interleaved "
        "repeat(s), medians, in steady state: streams without their first batch, batch jobs in a "
        "session that has run before. Outputs of the same input are equal (of deduplicate: its "
        "keys; which row of a key stays is each one's own rule).",
        "",
        "| ours | rows/s | theirs | rows/s | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for ours, theirs, target in PAIRS:
        ratio = pace(ours) / pace(theirs)
        verdict = f"**{ratio:.1f}**"
        if small.get(ours) == small.get(theirs):
            free = OWN_CHOICE.get(ours, set())
            mine, other = (
                {name: value for name, value in found[one][0]["check"].items() if name not in free}
                for one in (ours, theirs)
            )
            verdict += "" if mine == other else f" **OUTPUT DIFFERS**: {mine}, {other}"
        lines.append(
            f"| {ours} | {pace(ours):,.0f} | {theirs} | {pace(theirs):,.0f} | {verdict} | "
            f"≥ {target:g} |"
        )
    return lines


def state_growth() -> list[str]:
    """Many open keys, small batches: a fold's whole-bucket files beside RocksDB."""
    ours, theirs = state.CONTESTANTS
    lines = [
        "## State that grows",
        "",
        f"A 30-day window per key, all keys open, batches of {state.ROWS:,} rows over random keys; "
        f"medians of the batches of one run each. A fold writes its whole state every batch; of "
        f"RocksDB: all that {state.BATCHES + 1} batches left.",
        "",
        "| keys | ours, a batch | written | RocksDB, a batch | left | ours / theirs (target ≤ 3) |",
        "|---|---|---|---|---|---|",
    ]
    for keys in STATE_KEYS:
        print(f"state: {keys:,} keys", flush=True)
        mine, other = (run("bench.state", name, str(keys)) for name in (ours, theirs))
        lines.append(
            f"| {keys:,} | {mine['seconds']:.2f} s | {mine['bytes'] / 1e6:,.0f} MB | "
            f"{other['seconds']:.2f} s | {other['all bytes'] / 1e6:,.0f} MB | "
            f"**{mine['seconds'] / other['seconds']:.2f}** |"
        )
    return lines


STATE_KEYS = (1_000_000, 10_000_000)
LIVE_TARGETS = {"tidemill Kafka source": 0.6, "tidemill archive run": 0.5}
LIVE_ROWS = {200: 3_000_000, 1_000: 1_500_000}


def live_speed(repeats: int) -> list[str]:
    """The Kafka source and the archive run beside a bare consume loop; latency."""
    names = [name for name in live.CONTESTANTS if name != "latency"]
    lines = [
        "## Live",
        "",
        f"JSON records in {live.PARTITIONS} partitions of a broker on the same machine, "
        f"{repeats} interleaved repeats, medians. The loop looks at every value and does nothing; "
        "runs decode, judge, go through Spark and commit, in steady state (without the first "
        "batch). The loop is bare: the client's own settings. Tuned: `fetch.queue.backoff.ms` "
        "is 5 instead of 1000, as it is in our reader.",
        "",
        "| | bytes | rows/s | to bare | target | to tuned |",
        "|---|---|---|---|---|---|",
    ]
    for size, rows in LIVE_ROWS.items():
        found: dict[str, list[float]] = {name: [] for name in names}
        for number in range(repeats):
            for name in names:
                print(f"live {number + 1}/{repeats}: {name}, {size} B", flush=True)
                each = run("bench.live", name, str(size), str(rows))
                found[name].append(each["rows"] / each["seconds"])
        base, best = (statistics.median(found[name]) for name in names[:2])
        for name in names:
            pace = statistics.median(found[name])
            target = f"≥ {LIVE_TARGETS[name]}" if name in LIVE_TARGETS else ""
            lines.append(
                f"| {name} | {size} | {pace:,.0f} | **{pace / base:.2f}** | {target} | "
                f"{pace / best:.2f} |"
            )
    print("live: latency", flush=True)
    seen = run("bench.live", "latency", "200", "40000")
    return [
        *lines,
        "",
        f"From produce to visible in the table, 1,000 rows/s, a trigger of 1 s, slack 200 ms: "
        f"p50 {seen['p50']:.2f} s, p99 {seen['p99']:.2f} s over {seen['rows']:,} rows.",
    ]


def memory(rows: int) -> list[str]:
    """The driver's peak over 3 and over 24 hours."""
    print("memory: 3 h, 24 h", flush=True)
    short, long = (run("bench.memory", str(rows), str(hours)) for hours in (3, 24))
    lines = [
        "## Memory of the driver",
        "",
        "Slices of an hour. Python: peak resident size of the driver. Heap: the largest after a "
        "collection, sampled after every batch.",
        "",
        "| range | rows | Python | JVM heap | together |",
        "|---|---|---|---|---|",
    ]
    for value in (short, long):
        parts = [f"{value[key] / 2**20:,.0f} MiB" for key in ("python", "heap", "peak")]
        lines.append(f"| {value['hours']} h | {value['rows']:,} | {' | '.join(parts)} |")
    ratio = long["peak"] / short["peak"]
    return [*lines, f"| **ratio** (target ≤ 1.15) | | | | **{ratio:.2f}** |"]


def first_hour_speed(repeats: int) -> list[str]:
    """The project of `tidemill init`: what a newcomer waits for, and what a batch costs."""
    names = first_hour.CONTESTANTS
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(repeats):
        for name in names:
            print(f"first hour {number + 1}/{repeats}: {name}", flush=True)
            found[name].append(run("bench.first_hour", name))
    print("first hour: batches", flush=True)
    batch = run("bench.first_hour", "batches")
    ours, theirs, unknown, known = (
        statistics.median(each["seconds"] for each in values) for values in found.values()
    )
    line = statistics.median(each["first line"] for each in found["init's backfill"])
    rows = (
        ("`tidemill backfill` of `init`'s day", ours, "≤ 12 s"),
        ("its first line of progress", line, "≤ 6 s"),
        ("bare PySpark script, the same windows", theirs, ""),
        ("`tidemill plan` of unknown code", unknown, "≤ 6 s"),
        ("`tidemill plan` of known code", known, "≤ 1 s"),
    )
    return [
        "## The first hour",
        "",
        f"The project that `tidemill init` writes, 117,000 rows; {repeats} interleaved repeats, "
        "medians, from starting the command to its end. The script starts a session, counts the "
        "same windows of the same rows and writes Parquet files.",
        "",
        "| | seconds | target |",
        "|---|---|---|",
        *(f"| {name} | {seconds:.1f} | {target} |" for name, seconds, target in rows),
        f"| **backfill / bare script** | **{ours / theirs:.2f}** | ≤ 1.2 |",
        "",
        f"A backfill of the same day in {batch['batches']} small batches: a median of "
        f"**{batch['seconds']:.2f} s** per batch (target ≤ 0.25 s), without the first five. Its "
        "parts, medians in milliseconds:",
        "",
        "| part of a batch | ms |",
        "|---|---|",
        *(
            f"| {part} | {seconds * 1e3:.1f} |"
            for part, seconds in sorted(batch["parts"].items(), key=lambda each: -each[1])
        ),
    ]


COMPARED = {
    "key": "by the key, 1% differ",
    "none": "whole rows, no key, 1% differ",
    "skewed": "by a key that 9 of 10 rows have",
}


def compare_speed(rows: int, repeats: int) -> list[str]:
    """A shadow beside production: rows of both sides per second, and the peak of the process."""
    lines = [
        "## Compare",
        "",
        f"{rows:,} rows on each side, 40 files, five columns, {repeats} repeats, medians. Rows/s "
        "count both sides. CPU: seconds of both cores together. Memory: the peak of the whole "
        "process, without Spark.",
        "",
        "| | rows | seconds | rows/s (target ≥ 1,000,000) | CPU | memory |",
        "|---|---|---|---|---|---|",
    ]
    for key, told in COMPARED.items():
        found = []
        for number in range(repeats):
            print(f"compare {number + 1}/{repeats}: {told}", flush=True)
            found.append(run("bench.compare", str(rows), key))
        seconds, cpu, peak = (
            statistics.median(each[k] for each in found) for k in ("seconds", "cpu", "peak")
        )
        both = found[0]["rows"]
        lines.append(
            f"| {told} | {both:,} | {seconds:.1f} | **{both / seconds:,.0f}** | {cpu:.1f} s | "
            f"{peak / 2**20:,.0f} MiB |"
        )
    return lines


def machine() -> str:
    """What the figures were measured on."""
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("pyspark", "pyiceberg", "pyarrow")
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()}, Python {platform.python_version()}, {versions}."
    )


def sections(text: str) -> dict[str, str]:
    """The parts of a report by their headings."""
    parts = re.split(r"(?m)^(?=## )", text)
    return {part.splitlines()[0]: part.rstrip() + "\n" for part in parts if part.startswith("## ")}


PARTS = ("first", "layer", "memory", "folds", "state", "live", "compare")


def main() -> None:
    """Measure, print, write. A part that was not measured now keeps its last figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--only", choices=PARTS, action="append")
    given = arguments.parse_args()
    parts = {
        "first": lambda: first_hour_speed(given.repeats),
        "layer": lambda: layer_tax(given.rows, given.repeats),
        "memory": lambda: memory(given.rows),
        "folds": lambda: fold_speed(given.rows, given.repeats),
        "state": state_growth,
        "live": lambda: live_speed(given.repeats),
        "compare": lambda: compare_speed(given.rows, given.repeats),
    }
    for name in given.only or parts:
        text = "\n".join(parts[name]())
        print(text, flush=True)
        before, _, known = REPORT.read_text("utf-8").partition(MARK)
        found = {**sections(known), **sections(f"{text}\n\n{machine()}\n")}
        REPORT.write_text(f"{before}{MARK}\n\n" + "\n".join(found.values()), "utf-8")


if __name__ == "__main__":
    main()

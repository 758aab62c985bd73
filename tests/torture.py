"""``make torture``: kill drivers at random moments with new seeds; report in docs/reliability.md.

``python -m tests.torture [--kills N] [--seed S]``: the seed is printed, so a failure can be
repeated.
"""

import argparse
import platform
import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.reliability.scenario import RANGE, Yard, random_kills, worker_kills

REPORT = Path(__file__).parents[1] / "docs" / "reliability.md"
_HEAD = """# Reliability

What `make torture` saw. Every line is one backfill of half a day (19 slices) whose driver
(or, where it says so, one of Spark's Python workers) was killed with `kill -9` at a random moment,
resumed (sometimes by two processes at once, often while the old JVM still lived), and compared
with an undisturbed run: output, late and dead rows equal as multisets, no data file referenced
twice, counts equal.

`make test` does the same with fixed seeds, and kills the driver after every single step of a
commit in turn.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=10, help="how many disturbed runs")
    arguments.add_argument("--folds", type=int, default=10, help="runs of folds, of each kind")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = arguments.parse_args()
    print(f"seed {given.seed}")
    sections, failures = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for title, pipeline, disturb, count in (
            ("Drivers", "plays_per_show", random_kills, given.kills),
            ("Drivers of folds", "viewing", random_kills, given.folds),
            ("Python workers of folds", "viewing", worker_kills, given.folds),
        ):
            yard = Yard.make(Path(folder) / title.replace(" ", "_"), pipeline)
            section, failed = campaign(yard, title, disturb, range(given.seed, given.seed + count))
            sections.append(section)
            failures += failed
    REPORT.write_text(_report(sections), "utf-8")
    print(f"{failures} failed")
    raise SystemExit(1 if failures else 0)


def campaign(
    yard: Yard,
    title: str,
    disturb: Callable[[Yard, int], tuple[str, list[str]]],
    seeds: range,
) -> tuple[str, int]:
    """An undisturbed run, then one disturbed run for every seed; a section of the report."""
    began = time.monotonic()
    first = yard.run("backfill", yard.pipeline, *RANGE)
    calm = time.monotonic() - began
    expected = yard.tables(str(first["run"]))
    lines, failures = [], 0
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
        print(lines[-1], flush=True)
    section = [
        f"## {title}",
        "",
        f"An undisturbed run takes {calm:.0f} s, reads {expected.rows['in']:,} rows and writes "
        f"{expected.rows['out']:,}. **{len(lines) - failures} of {len(lines)} equal.**",
        "",
        "| seed | what happened | took | result |",
        "|---|---|---|---|",
        *lines,
        "",
    ]
    return "\n".join(section), failures


def _report(sections: list[str]) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyspark", "pyiceberg"))
    about = f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {versions}."
    return "\n".join([_HEAD, about, "", *sections])


if __name__ == "__main__":
    main()

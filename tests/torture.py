"""``make torture``: kill drivers at random moments with new seeds; report in docs/reliability.md.

``python -m tests.torture [--kills N] [--seed S]``: the seed is printed, so a failure can be
repeated.
"""

import argparse
import platform
import random
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.reliability.scenario import RANGE, Yard, random_kills

REPORT = Path(__file__).parents[1] / "docs" / "reliability.md"
_HEAD = """# Reliability

What `make torture` saw. Every line is one backfill of half a day (19 slices) whose driver was
killed with `kill -9` at a random moment, resumed (sometimes by two processes at once, often while
the old JVM still lived), and compared with an undisturbed run: output, late and dead rows equal as
multisets, no data file referenced twice, counts equal.

`make test` does the same with fixed seeds, and kills the driver after every single step of a
commit in turn.
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=10, help="how many disturbed runs")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = arguments.parse_args()
    print(f"seed {given.seed}")
    lines, failures = [], 0
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard.make(Path(folder) / "yard")
        began = time.monotonic()
        first = yard.run("backfill", "plays_per_show", *RANGE)
        calm = time.monotonic() - began
        expected = yard.tables(str(first["run"]))
        for number in range(given.kills):
            seed = given.seed + number
            began = time.monotonic()
            try:
                run, story = random_kills(yard, seed)
                same = yard.tables(run) == expected
                what = "; ".join(story) or "ended before the kill"
            except AssertionError as error:
                same, what = False, f"error: {str(error).splitlines()[0][:120]}"
            failures += not same
            seconds = time.monotonic() - began
            verdict = "equal" if same else "**DIFFERENT**"
            lines.append(f"| {seed} | {what} | {seconds:.0f} s | {verdict} |")
            print(lines[-1], flush=True)
    REPORT.write_text(_report(lines, failures, calm, expected.rows), "utf-8")
    print(f"{given.kills - failures} passed, {failures} failed")
    raise SystemExit(1 if failures else 0)


def _report(lines: list[str], failures: int, calm: float, rows: dict[str, int]) -> str:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyspark", "pyiceberg"))
    return "\n".join(
        [
            _HEAD,
            f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {versions}. "
            f"An undisturbed run takes {calm:.0f} s, reads {rows['in']:,} rows and writes "
            f"{rows['out']:,}.",
            "",
            f"**{len(lines) - failures} of {len(lines)} equal.**",
            "",
            "| seed | what happened | took | result |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    main()

"""Compare this commit's own contestants with those of an earlier commit, interleaved in one run.

``python -m bench.against COMMIT [--repeats 3] [--only sessions]`` checks the commit out into a
temporary worktree, runs every contestant there and here by turns, and prints the ratio of their
speeds. Both sides run with the libraries of this environment: the code is the only difference.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CONTESTANTS = (
    ("bench.layer", "tidemill", 10_000_000),
    ("bench.folds", "tidemill sessions", 10_000_000),
    ("bench.folds", "tidemill windows", 10_000_000),
    ("bench.folds", "tidemill deduplicate", 10_000_000),
    ("bench.folds", "tidemill attribute", 2_500_000),
    ("bench.folds", "tidemill process", 2_000_000),
)


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit in a temporary folder, which goes again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def measure(root: Path, module: str, name: str, rows: int) -> dict[str, float]:
    """Run one contestant of one side: its rows per second in steady state, and its whole time."""
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(rows)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} {name} failed in {root}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "steady" in found:
        return {"pace": found["steady rows"] / found["steady"], "total": found["total"]}
    return {"pace": found["rows"] / found["seconds"], "total": found["total"]}


def main() -> None:
    """Measure both sides by turns and print a table of medians."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("commit")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--only", help="a part of a contestant's name")
    given = arguments.parse_args()
    chosen = [each for each in CONTESTANTS if (given.only or "") in " ".join(each[:2])]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with worktree(given.commit) as before:
        for number in range(given.repeats + 1):  # the first round makes the data and warms the disk
            for module, name, rows in chosen:
                sides = [("before", before), ("now", ROOT)]
                for side, root in sides if number % 2 else reversed(sides):
                    each = measure(root, module, name, rows)
                    print(f"{number}/{given.repeats} {module} {name} {side}: {each}", flush=True)
                    if number:
                        found.setdefault((f"{module} {name}", side), []).append(each)
    print("\n| | before | now | now / before | total, before / now |\n|---|---|---|---|---|")
    for module, name, _ in chosen:
        pace, total = (
            [
                statistics.median(each[key] for each in found[f"{module} {name}", side])
                for side in ("before", "now")
            ]
            for key in ("pace", "total")
        )
        print(
            f"| {module} {name} | {pace[0]:,.0f} rows/s | {pace[1]:,.0f} rows/s | "
            f"**{pace[1] / pace[0]:.2f}** | {total[0] / total[1]:.2f} |"
        )


if __name__ == "__main__":
    main()

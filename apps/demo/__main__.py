"""``make demo``: a live run has had a bug for two hours, and its table gets right beside it.

Everything is made anew in ``demo/`` at the root of the repository, where it can be played with.
"""

import argparse
import sys
from pathlib import Path

from apps.demo.stage import ROOT, DemoError, out, shown
from apps.demo.story import PIPELINE, timed

from tidemill.errors import TidemillError


def main() -> None:
    """Run the demo; errors are told in a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "demo")
    parser.add_argument("--hours", type=float, default=2, help="how long the bug was there")
    parser.add_argument("--rate", type=int, default=40, help="plays per second")
    given = parser.parse_args()
    try:
        seconds = timed(given.folder, given.hours, given.rate)
    except TidemillError as error:
        sys.exit(f"error: {error.text()}")
    except DemoError as error:
        sys.exit(f"error: {error}")
    out.print(
        f"\n[bold]try next[/]  [dim]# . .venv/bin/activate && cd {shown(given.folder)}[/]\n"
        f"  tidemill runs\n"
        f"  tidemill show {PIPELINE} --rows 5\n"
        f"  tidemill late {PIPELINE}  [dim]# how late, and which lateness would have kept them[/]\n"
        f"  tidemill shadows"
    )
    out.print(f"\n[dim]the demo took {seconds:.0f} s[/]")


if __name__ == "__main__":
    main()

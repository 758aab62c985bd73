"""``make demo``: a day of events, a plan, a backfill, sessions, and a look at the results.

Everything is made anew in ``demo/`` at the root of the repository, where it can be played with.
"""

import argparse
import sys
import time
from pathlib import Path

from apps.demo import playback, sessions
from apps.demo.stage import ROOT, out, shown

from tidemill.errors import TidemillError


def main() -> None:
    """Run the demo; errors are told in a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "demo")
    parser.add_argument("--rows", type=int, default=1_500_000, help="playbacks to generate")
    given = parser.parse_args()
    began = time.monotonic()
    try:
        playback.run(given.folder, given.rows)
        sessions.run(given.folder / "sessions", given.rows // 10)
    except TidemillError as error:
        sys.exit(f"error: {error.text()}")
    _show_next(given.folder)
    out.print(f"\n[dim]the demo took {time.monotonic() - began:.0f} s[/]")


def _show_next(folder: Path) -> None:
    name, over = playback.PIPELINE, playback.RANGE
    out.print(
        f"\n[bold]try next[/]  [dim]# . .venv/bin/activate && cd {shown(folder)}[/]\n"
        f"  tidemill runs\n"
        f"  tidemill backfill plays_per_show_sql {over}  [dim]# the same in SQL[/]\n"
        f"  tidemill backfill {name} {over} --slice 17min  [dim]# other slices, same rows[/]\n"
        f"  tidemill backfill {name} {over} --region eu-west-1\n"
        f"  tidemill late {name}  [dim]# how late, and which lateness would have kept them[/]\n"
        f"  cd sessions && tidemill backfill top_shows {sessions.RANGE}",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()

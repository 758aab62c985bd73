"""docs/reliability.md: a section per campaign; one that was not run again stays as it is."""

import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

REPORT = Path(__file__).parents[1] / "docs" / "reliability.md"
_HEAD = """# Reliability

What `make torture` saw. Unless a section says something else, every line is one backfill of half a
day (19 slices) whose driver (or one of Spark's Python workers) was killed with `kill -9` at a
random moment, resumed (sometimes by two processes at once, often while the old JVM still lived),
and compared with an undisturbed run: output, late and dead rows equal as multisets, no data file
referenced twice, counts equal.

`make test` kills drivers and workers of folds with fixed seeds, and a driver of Spark's own
operators after every single step of a commit in turn.
"""


def when() -> str:
    """The day and the versions that a section is about."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("pyspark", "pyiceberg"))
    return f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {versions}"


def kept_sections() -> dict[str, str]:
    """The sections of an earlier report, by title."""
    before = REPORT.read_text("utf-8").split("\n## ")[1:] if REPORT.exists() else []
    return {part.splitlines()[0]: f"## {part}" for part in before}


def write_sections(made: dict[str, str]) -> None:
    """The new sections, and those of an earlier report that were not made again."""
    sections = {**kept_sections(), **made}.values()
    text = "\n".join([_HEAD, *(part.rstrip() + "\n" for part in sections)])
    REPORT.write_text(text, "utf-8")

"""Pipelines to plan, many in one project: modules that are wrong, and code that is."""

from collections.abc import Iterable
from pathlib import Path

from tests.bad_input.shop import YAML, Shop, events, table, untouched
from tests.bad_input.terminal import Outcome

MODULES = {
    "broken": "def sums(plays):\n    return plays.(\n",
    "needy": "import no_such_package\n",
    "failing": "rates = {}\nRATE = rates['EUR']\n",
    "typed": "from pyspark.sql import functions as F\n@F.udf('string')\ndef up(v):\n    return v\n",
    "leaving": "import sys\nsys.exit(3)\n",
    "stranger": "def views(views):\n    return views\n",
    "priced": "def sums(plays, least: float, country: str = 'DE'):\n    return plays\n",
}
CODE = """\
from datetime import datetime
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

def by_window(plays, value):
    windows = plays.groupBy(F.window("event_ts", "10 minutes"), "key").agg(value.alias("v"))
    return windows.select(F.col("window.start").alias("t"), "key", "v")


def row_wise(plays, *columns):
    return plays.select(F.col("event_ts").alias("t"), "key", *columns)


def static_join(plays):
    names = SparkSession.active().read.schema("key long, name string").csv(".")
    return row_wise(plays.join(names, "key"), "name")


def open_join(plays):
    left = plays.select("key", F.col("event_ts").alias("t"))
    right = plays.select(F.col("key").alias("k"), F.col("event_ts").alias("u"))
    after = F.expr("key = k and u >= t")
    return left.join(right, after).select("t", "key", "u")


def sessions(plays):
    made = plays.groupBy(F.session_window("event_ts", "5 minutes"), "key").count()
    return made.select(F.col("session_window.start").alias("t"), "key", "count")


def fails(plays):
    rates = {}
    return row_wise(plays, F.lit(rates["EUR"]))
"""
ENTRY = "    entry: pipelines:NAME\n"


def with_modules(folder: Path) -> Shop:
    """A project with modules that cannot be used; of its own code nothing is known yet."""
    made = Shop.make(folder)
    for name, text in MODULES.items():
        (made.folder / f"{name}.py").write_text(text, "utf-8")
    made.fill("logs.plays", table(events(2)))
    return made


class Workshop:
    """One project with a pipeline for every piece of code, named p0, p1, …"""

    def __init__(self, folder: Path, pieces: Iterable[str]) -> None:
        self.pieces, code = list(pieces), CODE
        text = YAML[: YAML.index("pipelines:")] + "pipelines:\n"
        for number, made in enumerate(self.pieces):
            code += f"\n\ndef p{number}(plays):\n    return {made}\n"
            text += (
                f"  p{number}:\n    entry: pipelines:p{number}\n"
                f"    sinks: {{output: {{table: marts.p{number}, time: t}}}}\n"
            )
        self.shop = Shop.make(folder, text, code)
        self.shop.fill("logs.plays", table(events(2)))
        self.lines = code.splitlines()

    def plan(self, made: str, *edits: tuple[str, str]) -> tuple[str, Outcome]:
        """Plan the pipeline with this code: its name, and how planning it ends."""
        name = f"p{self.pieces.index(made)}"
        project = self.shop.variant(
            *((a.replace("NAME", name), b.replace("NAME", name)) for a, b in edits)
        )
        with untouched(self.shop):
            return name, project.plan(pipeline=name)

    def line(self, made: str) -> int:
        """The line with this code."""
        return 1 + self.lines.index(f"    return {made}")

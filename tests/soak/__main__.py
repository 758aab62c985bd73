"""``python -m tests.soak [--books N] [--live N]``: what a run costs must not grow with its age.

The results are sections of docs/reliability.md; a soak of 0 batches is left out.
"""

import argparse
import tempfile
import time
from pathlib import Path

from tests.jvm import start_light
from tests.kafka.broker import Broker
from tests.report import when, write_sections
from tests.soak.bookkeeping import soak
from tests.soak.live import soak_live
from tests.soak.tenths import LIMIT, Growth, Tenths
from tidemill.config.spark import SparkConfig
from tidemill.runtime.spark.session import build_session

_MEMORY_DISK = Path("/dev/shm")
_BOOKS = """\
{batches:,} batches of a quiet live run through the driver's own bookkeeping, without Spark: the
slice is decided, the offset log read, side files and state taken and forgotten, the stamp made, a
table committed in every 500th batch, the registry told and asked ({took:.0f} min; the files lie in
memory and time is the processor's, so that neither the disk nor other load counts)."""
_LIVE = """\
{batches:,} live batches of a fold over a Kafka topic, with Spark, one every half second
({took:.0f} min). Time is the work of a batch as Spark counts it; memory is the driver's Python and
what the JVM holds after a collection; files are those of the run's folder and of the tables'
metadata, without those that are only kept for readers (a minute here instead of six hours): how
many these are follows from the pace."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--books", type=int, default=500_000, help="batches without Spark")
    arguments.add_argument("--live", type=int, default=5_000, help="live batches with Spark")
    given = arguments.parse_args()
    start_light()
    grown = []
    if given.books:
        began = time.monotonic()
        place = _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
        with tempfile.TemporaryDirectory(dir=place) as folder:
            found = soak(Path(folder), given.books)
        about = _BOOKS.format(batches=given.books, took=(time.monotonic() - began) / 60)
        grown.append(_tell("Soak: bookkeeping", about, found))
    if given.live:
        began = time.monotonic()
        found = _live(given.live)
        about = _LIVE.format(batches=given.live, took=(time.monotonic() - began) / 60)
        grown.append(_tell("Soak: live", about, found))
    raise SystemExit(0 if all(growth.is_flat for growth in grown) else 1)


def _live(batches: int) -> Tenths:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        config = SparkConfig(master="local[2]", memory="1g")
        spark = build_session(config, 2, "soak", log=home / "spark.log")
        try:
            with Broker(home / "kafka") as broker:
                return soak_live(home / "project", broker, spark, batches)[0]
        finally:
            spark.stop()


def _tell(title: str, about: str, found: Tenths) -> Growth:
    growth = found.growth()
    parts = f"time {growth.seconds:.2f}, memory {growth.memory:.2f}, files {growth.files:.2f}, "
    result = f"{parts}registry queries {growth.queries:.2f}"
    verdict = "flat" if growth.is_flat else "**GROWS**"
    said = f"Last tenth by the first: {result} (at most {LIMIT}): **{verdict}** ({when()})."
    text = "\n".join([f"## {title}", "", f"{about} {said}", "", *found.lines(), ""])
    print(text, flush=True)
    write_sections({title: text})
    return growth


if __name__ == "__main__":
    main()

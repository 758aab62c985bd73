"""A feed of files without Kafka and Spark: a topic of requests in memory, files on disk."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.manifests import make_pin
from tidemill.connectors.archives.opening import log_schema
from tidemill.connectors.logs.contract import SlicesPlace
from tidemill.connectors.logs.files.home import FeedPin
from tidemill.connectors.logs.files.log import FileSlices
from tidemill.connectors.logs.files.requests import Message
from tidemill.connectors.logs.kafka.topic import LogState
from tidemill.planning.feed import EASE
from tidemill.planning.manifest import LivePin, SourcePin
from tidemill.planning.offsets import Offset
from tidemill.reading.sidefile import Counts, read_side_files, side_name
from tidemill.reading.task import SliceTask, read_task
from tidemill.rows.columns import INGEST_TIME, OFFSET, PARTITION, needed_columns, stream_schema
from tidemill.runfolder.decided_slices import DecidedSlices
from tidemill.types import MILLISECOND, SECOND

BEGIN = 1_767_225_600 * SECOND
DDL = "id long, event_ts timestamp, ingest_ts timestamp"
COLUMNS = ("id", "event_ts")
WIDE = 3_600 * SECOND
REQUESTS_SLACK = 1 * SECOND


@dataclass
class FakeTopic:
    """A topic of requests: what the driver asks of a log."""

    clock: int = BEGIN
    partitions: list[list[tuple[int, bytes | None]]] = field(default_factory=lambda: [[]])
    stable: dict[int, int] = field(default_factory=dict)  # open transactions
    topic: str = "a"

    def ask(self, value: Any, partition: int = 0) -> None:
        text = json.dumps(value).encode() if isinstance(value, dict) else value
        self.partitions[partition].append((self.clock // MILLISECOND * MILLISECOND, text))

    def look(self) -> LogState:
        high = {number: len(found) for number, found in enumerate(self.partitions)}
        low = dict.fromkeys(high, 0)
        return LogState(self.clock, self.topic, low, {**high, **self.stable}, high)

    def ends_at(self, moment: int, state: LogState) -> dict[int, int]:
        moment = moment // MILLISECOND * MILLISECOND
        return {
            number: next(
                (n for n, (at, _) in enumerate(self.partitions[number][:stable]) if at >= moment),
                stable,
            )
            for number, stable in state.stable.items()
        }

    def time_at(self, partition: int, offset: int) -> int | None:
        rest = self.partitions[partition][offset:]
        return rest[0][0] if rest else None


class Slices(FileSlices):
    """The real slices over a topic in memory."""

    def _messages(self, partition: int, start: int, end: int) -> list[Message]:
        records = list(enumerate(self.log.partitions[partition]))[start:end]
        return [Message(at, partition, offset, value) for offset, (at, value) in records]


def feed_pin(
    *,
    ingest_time: str | None = None,
    slack: int | None = None,
    lateness: int = 0,
    skew: int = 0,
    file_format: str | None = None,
    max_rows: int = 500_000,
    ddl: str = DDL,
    zone: str = "UTC",
) -> SourcePin:
    form = {"kind": "json", "columns": ddl, "avro": None, "zone": zone, "framed": False}
    live = LivePin(
        "files",
        "requests",
        REQUESTS_SLACK,
        max_rows,
        0,
        format=form,
        own=asdict(FeedPin(ingest_time, file_format, slack)),
    )
    return make_pin(
        stream="views",
        archive=None,
        event_time="event_ts",
        ingest_time=INGEST_TIME,
        lateness=lateness + EASE,
        skew=skew,
        columns=COLUMNS,
        zone=zone,
        partition=PARTITION,
        offset=OFFSET,
        live=live,
    )


class Feed:
    """One run of one feed, slice by slice, as Spark would drive it."""

    def __init__(self, run: Path, root: Path, topic: FakeTopic, pin: SourcePin, begin: int) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self.run, self.topic, self.pin = run, topic, pin
        self.schema = log_schema(pin)
        self.slices = Slices(
            SlicesPlace(run, "views", pin, self.schema, {"client": {}, "root": root.as_uri()}, {})
        )
        self.slices.__dict__["log"] = topic
        self.decided_slices = DecidedSlices(run, "views")
        self.at = Offset("views", begin, {str(n): 0 for n in range(len(topic.partitions))})
        self.counts = Counts()
        self.passed: list[tuple[Offset, Offset, list[dict[str, Any]], list[dict[str, Any]]]] = []

    def decide(self, widest: int = WIDE, rate: int | None = None) -> Offset | None:
        known = self.decided_slices.after(self.at.frontier)
        if known is None:
            known = self.slices.decide(self.at, widest, rate)
            known = known and self.decided_slices.decide(self.at.frontier, known)
        return known

    def step(self, widest: int = WIDE, tasks: int = 2) -> bool:
        """Decide and read one slice; False if there is none."""
        end = self.decide(widest)
        if end is None:
            return False
        rows, aside = self.read(self.at, end, tasks)
        self.passed.append((self.at, end, rows, aside))
        self.at = end
        return True

    def read(
        self, start: Offset, end: Offset, tasks: int = 2
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        reader, loads = self.slices.share(start, end, tasks)
        side = (self.run / "side").as_uri()
        rows, names = [], []
        for index, load in enumerate(loads):
            name = side_name("views", start.frontier, end.frontier, index)
            names.append(name)
            task = SliceTask(
                source="views",
                pin=self.pin,
                reader=reader,
                pieces=tuple(load),
                columns=needed_columns(self.pin, self.schema.names),
                schema=stream_schema(replace(self.pin), self.schema),
                mark=None,
                side=(side, name),
                lane=(0, 1),
                event_range=None,
            )
            rows += [row for batch in read_task(task) for row in batch.to_pylist()]
        counts, aside = read_side_files(side, names)
        self.counts += counts
        return rows, aside.to_pylist()

    def all(self, most: int = 1_000) -> None:
        for _ in range(most):
            if not self.step():
                return

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, _, rows, _ in self.passed for row in rows]

    @property
    def aside(self) -> list[dict[str, Any]]:
        return [row for _, _, _, aside in self.passed for row in aside]


def moments(times: list[int | None]) -> pa.Array:
    return pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))


def write_file(
    path: Path, events: list[int | None], ingests: list[int | None] | None = None, first: int = 0
) -> Path:
    """A file in the format of its name, with ids from ``first`` on."""
    ids = list(range(first, first + len(events)))
    ingests = events if ingests is None else ingests
    table = pa.table({"id": ids, "event_ts": moments(events), "ingest_ts": moments(ingests)})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return path
    rows = [
        {**row, **{name: row[name] and row[name].isoformat() for name in table.schema.names[1:]}}
        for row in table.to_pylist()
    ]
    if path.suffix == ".csv":
        lines = [",".join(table.schema.names)]
        lines += [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    else:
        lines = [json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def settle() -> None:
    """Let the coarsest clock of a filesystem tick."""
    time.sleep(0.02)


class Yard:
    """A feed with its files and its topic."""

    def __init__(self, folder: Path, begin: int = 0, partitions: int = 1, **pin):
        self.files, self.folder = folder / "files", folder
        self.files.mkdir()
        self.topic = FakeTopic(BEGIN + 3_600 * SECOND, [[] for _ in range(partitions)])
        self.pin, self.begin = feed_pin(**pin), begin
        self.feed = self.run("one")

    def run(self, name: str) -> Feed:
        return Feed(self.folder / name, self.files, self.topic, self.pin, self.begin)

    def ask(self, name: str, events, ingests=None, first=0, partition=0, **more):
        write_file(self.files / name, events, ingests, first)
        self.topic.ask({"uri": name, **more}, partition)

    def later(self, seconds: float = 2.0) -> None:
        self.topic.clock += round(seconds * SECOND)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.feed.rows)


def times(*seconds):
    return [BEGIN + round(s * SECOND) for s in seconds]

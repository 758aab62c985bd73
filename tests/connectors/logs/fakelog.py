"""A log in memory that behaves as Kafka does: transactions, markers, times that may step back."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tidemill.connectors.logs.kafka.topic import LogState
from tidemill.types import MILLISECOND

SLACK = 20 * MILLISECOND
BEGIN = 1_767_225_600_000 * MILLISECOND


@dataclass
class Record:
    """One offset of a partition."""

    time: int  # ms, the log's own
    row: int | None = None  # None: a marker of a transaction
    transaction: int | None = None


@dataclass
class FakeLog:
    """Partitions, open and aborted transactions, a clock, and a log's clock beside it."""

    clock: int = BEGIN
    drift: int = 0  # µs the log's clock is ahead
    partitions: list[list[Record]] = field(default_factory=lambda: [[]])
    open: dict[int, int] = field(default_factory=dict)  # transaction: partition
    aborted: set[int] = field(default_factory=set)
    probes: int = 0
    rows: int = 0
    transactions: int = 0
    topic: str = "a"
    low: dict[int, int] = field(default_factory=dict)

    def append(self, partition: int, count: int = 1, transaction: int | None = None) -> None:
        """Rows that come at one moment."""
        for _ in range(count):
            self.rows += 1
            at = (self.clock + self.drift) // MILLISECOND
            self.partitions[partition].append(Record(at, self.rows, transaction))

    def begin(self, partition: int) -> int:
        """Open a transaction; it hides nothing before its first row."""
        self.transactions += 1
        self.open[self.transactions] = partition
        return self.transactions

    def end(self, transaction: int, is_aborted: bool = False) -> None:
        """Close a transaction: its marker is an offset without a row."""
        partition = self.open.pop(transaction)
        if is_aborted:
            self.aborted.add(transaction)
        if any(record.transaction == transaction for record in self.partitions[partition]):
            at = (self.clock + self.drift) // MILLISECOND
            self.partitions[partition].append(Record(at))

    def stable(self, partition: int) -> int:
        """The first offset of an open transaction, else the end."""
        records = self.partitions[partition]
        hidden = (n for n, found in enumerate(records) if found.transaction in self.open)
        return next(hidden, len(records))

    def look(self) -> LogState:
        numbers = range(len(self.partitions))
        return LogState(
            clock=self.clock,
            topic=self.topic,
            low={number: self.low.get(number, 0) for number in numbers},
            stable={number: self.stable(number) for number in numbers},
            high={number: len(self.partitions[number]) for number in numbers},
        )

    def ends_at(self, frontier: int, state: LogState) -> dict[int, int]:
        """As the broker answers: the first offset at or after a time, before the last stable one.

        Markers and aborted rows have a time too.
        """
        moment = frontier // MILLISECOND
        found = {}
        for number in state.stable:
            records = self.partitions[number]
            at = next((n for n, record in enumerate(records) if record.time >= moment), -1)
            found[number] = at if 0 <= at < self.stable(number) else state.stable[number]
        return found

    def time_at(self, partition: int, offset: int) -> int | None:
        """The time of the first row at or after an offset, hidden or aborted rows included."""
        self.probes += 1
        rest = self.partitions[partition][offset:]
        return next((found.time * MILLISECOND for found in rest if found.row is not None), None)

    def read(self, partition: int, start: int, end: int) -> list[tuple[int, int]]:
        """(row, ingest time in µs) of a range, as a reader makes them: the running maximum."""
        newest, found = -1, []
        for record in self.partitions[partition][start:end]:
            if record.row is None or record.transaction in self.aborted:
                continue
            assert record.transaction not in self.open, "a reader never sees a hidden row"
            newest = max(newest, record.time)
            found.append((record.row, newest * MILLISECOND))
        return found

    def visible(self) -> Iterable[int]:
        """Every row that was not aborted."""
        return (
            record.row
            for records in self.partitions
            for record in records
            if record.row is not None and record.transaction not in self.aborted
        )


Event = tuple[str, int, int]
_KINDS = ("rows", "burst", "begin", "hidden", "commit", "abort", "grow", "slice", "slice", "slice")


def events(*, backwards: bool = False) -> st.SearchStrategy[list[Event]]:
    """What happens to a log, each with the milliseconds that pass before it.

    ``backwards``: the log's clock may step back, by no more than the slack; there are no
    transactions then, whose markers would carry times that no row has.
    """
    kinds = [*_KINDS[:2], *_KINDS[6:], "step"] if backwards else _KINDS
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.integers(0, 30), st.integers(0, 99)), max_size=60
    )


def happen(log: FakeLog, event: Event) -> None:
    """Let one thing happen; "slice" is the reader's own."""
    kind, pause, chosen = event
    log.clock += pause * MILLISECOND + chosen * 7  # not whole milliseconds
    partition = chosen % len(log.partitions)
    opened: Sequence[int] = sorted(log.open)
    if kind == "rows":
        log.append(partition, 1 + chosen % 3)
    elif kind == "burst":
        log.append(partition, 5 + chosen % 20)
    elif kind == "begin":
        log.append(partition, 1, log.begin(partition))
    elif kind == "hidden" and opened:
        transaction = opened[chosen % len(opened)]
        log.append(log.open[transaction], 1 + chosen % 2, transaction)
    elif kind in ("commit", "abort") and opened:
        log.end(opened[chosen % len(opened)], is_aborted=kind == "abort")
    elif kind == "grow" and len(log.partitions) < 5:
        log.partitions.append([])
    elif kind == "step":
        log.drift = -(chosen * SLACK // 99)


def calm(log: FakeLog) -> None:
    """Nothing is open any more, and all that came is older than the slack."""
    for transaction in list(log.open):
        log.end(transaction)
    log.clock += 3 * SLACK


Positions = dict[int, int]


class Reader:
    """Takes slices of a log, and holds every one to the promises."""

    def __init__(
        self,
        log: FakeLog,
        decide: Callable[[int, Positions], tuple[int, Positions]],
        widest: int,
    ) -> None:
        self.log, self.decide, self.widest = log, decide, widest
        self.frontier = BEGIN - SLACK
        self.positions: Positions = {}
        self.seen: list[int] = []
        self.slices = 0

    def go(self, event: Event) -> int:
        """Let one thing happen; the rows of the slice, if that was to take one."""
        happen(self.log, event)
        return self.take() if event[0] == "slice" else 0

    def take(self) -> int:
        """One slice, if there is one yet; its rows beyond those of a single millisecond."""
        before, begin = self.frontier, self.positions
        self.frontier, self.positions = self.decide(before, begin)
        if self.frontier == before:
            assert self.positions == begin
            return 0
        self.slices += 1
        assert self.frontier % MILLISECOND == 0
        assert self.frontier - before <= self.widest
        rows = 0
        for number, end in self.positions.items():
            for row, ingest in self.log.read(number, begin.get(number, 0), end):
                assert ingest < self.frontier, f"row {row} lies at or after its frontier"
                assert ingest >= before, f"row {row} was left behind an earlier frontier"
                self.seen.append(row)
                rows += 1
        return rows if self.frontier - before > MILLISECOND else 0

    def finish(self) -> None:
        """All that came, in as many slices as it needs, but not more."""
        calm(self.log)
        end = (self.log.clock - SLACK) // MILLISECOND * MILLISECOND
        most = self.slices + (end - self.frontier) // MILLISECOND
        while self.frontier < end:
            taken = self.slices
            self.take()
            assert taken < self.slices <= most, "it goes on"
        assert sorted(self.seen) == sorted(self.log.visible())

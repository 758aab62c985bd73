"""One task of a live slice: rows behind its start are told apart, counted, and never lost."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.manifests import make_pin
from tidemill.connectors.pieces import Piece
from tidemill.reading.sidefile import Counts, read_side_files
from tidemill.reading.task import LogTracker, SliceTask, read_task
from tidemill.rows.columns import MARK, stream_schema
from tidemill.types import SECOND, to_micros

T0 = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("n", pa.int64()), ("event", TIME), ("ingest", TIME), ("part", pa.int32()),
     ("pos", pa.int64()), ("_raw", pa.binary()), ("_reason", pa.string())]
)  # fmt: skip
LATENESS, SKEW = 10 * SECOND, SECOND


class Rows:
    """A reader of given rows: (event, ingest) in seconds from T0, and maybe why it is dead."""

    def __init__(self, *rows: tuple[float | None, float, str | None]) -> None:
        self.rows = rows

    def read(self, piece: Piece, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        start = piece.handle[1]
        made = [
            {"n": n, "event": None if event is None else T0 + int(event * SECOND),
             "ingest": T0 + int(ingest * SECOND), "part": 0, "pos": start + n, "_raw": None,
             "_reason": reason}
            for n, (event, ingest, reason) in enumerate(self.rows)
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(made, SCHEMA).select(columns)


def task_of(folder, reader: Rows, floor: float, *, for_archive: bool = False, end: int = 0):
    """A task that reads these rows of a slice from ``floor`` on."""
    pin = make_pin(
        "plays", None, "event", "ingest", lateness=LATENESS, skew=SKEW, columns=("n",),
        partition="part", offset="pos", for_archive=for_archive,
    )  # fmt: skip
    return SliceTask(
        source="plays", pin=pin, reader=reader,
        pieces=(Piece((0, 5, end or 5 + len(reader.rows)), 0, 0, 0),), columns=tuple(SCHEMA.names),
        schema=stream_schema(pin, SCHEMA), mark=None, side=(folder.as_uri(), "plays/0-1/0.arrow"),
        lane=(0, 1), event_range=None, floor=T0 + int(floor * SECOND),
    )  # fmt: skip


def run(folder, reader: Rows, floor: float, **how):
    """The rows given on, the counts, and the rows set aside."""
    task = task_of(folder, reader, floor, **how)
    given = [row for batch in read_task(task) for row in batch.to_pylist()]
    assert not any(row[MARK] for row in given)
    counts, aside = read_side_files(folder.as_uri(), ["plays/0-1/0.arrow"])
    assert counts.read == len(given) + len(aside)
    return [row["n"] for row in given], counts, aside.column("reason").to_pylist()


def test_a_row_behind_the_slice_is_late_because_of_the_clock(tmp_path):
    rows = Rows((99, 100, None), (98, 99.999, None), (100, 100.001, None))
    given, counts, reasons = run(tmp_path, rows, 100)
    assert given == [0, 2]
    assert reasons == ["clock"]
    assert (counts.on_time, counts.late, counts.dead, counts.clock) == (2, 1, 0, 1)


@pytest.mark.parametrize(
    ("event", "reason", "said"),
    [(80, None, "late"), (98, None, "future"), (None, None, "no event time"),
     (95, "not JSON", "not JSON")],
)  # fmt: skip
def test_what_any_run_would_set_aside_is_not_the_clocks(tmp_path, event, reason, said):
    ingest = 96 if said == "future" else 95
    given, counts, reasons = run(tmp_path, Rows((event, ingest, reason)), 100)
    assert (given, reasons, counts.clock) == ([], [said], 0)


def test_an_archive_keeps_rows_behind_and_counts_them(tmp_path):
    rows = Rows((99, 100, None), (98, 99, None), (None, 98, "not JSON"), (100, 101, None))
    given, counts, reasons = run(tmp_path, rows, 100, for_archive=True, end=12)
    assert given == [0, 1, 2, 3] and reasons == []
    assert counts == Counts(
        on_time=4, clock=2, newest={"0": T0 + 101 * SECOND}, gaps={"0": [(9, 11)]}
    )


def test_ingest_times_of_an_archive_never_fall_behind_the_slice(tmp_path):
    reader = Rows((99, 99, None), (98, 98, None), (100, 101, None))
    task = task_of(tmp_path, reader, 100, for_archive=True)
    (rows,) = reader.read(task.pieces[0], task.columns)
    seen = LogTracker(task).see(rows)
    assert seen.drop_columns("ingest").equals(rows.drop_columns("ingest"))
    times = [to_micros(at) - T0 for at in seen.column("ingest").to_pylist()]
    assert times == [100 * SECOND, 100 * SECOND, 101 * SECOND]
    _, counts, _ = run(tmp_path, Rows((99, 99, None)), 100, for_archive=True)
    assert counts.newest == {"0": T0 + 100 * SECOND}

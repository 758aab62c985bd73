"""All that the system asks of a sink: in the YAML, on the driver, and on executors.

A connector is one module with three classes. The table ``SINKS`` in `config/sink.py`, or an entry
point of the group ``tidemill.sinks``, names the first.

- The *section* (a ``SinkSection``) is what the YAML says. It tells planning what it writes, pins
  the place for a run, and gives by its class method ``open(run, name, pin)`` the sink of a pin.
- The *sink* (:class:`Sink`) lives on the driver, from the start check to the run's last commit.
- The *destination* (:class:`Destination`) travels to executors and is opened once per task. What
  its tasks tell of their rows comes back to the sink's ``commit``, from exactly those tasks whose
  result Spark has taken. Tasks may run twice, and those of a driver that was killed go on for a
  while, so what a task writes must not be seen before the commit.

Secrets come from the YAML at each start. A pin is written to disk and must hold none.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.pins import SinkPin
from tidemill.config.sink import SINKS, SinkSection
from tidemill.errors import PlanError, RunError, SinkError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tidemill.config.loader import LoadedConfig
    from tidemill.connectors.sinks.replacing import Production
    from tidemill.connectors.sinks.stamp import BatchStamp
    from tidemill.planning.manifest import Manifest, SourcePin
    from tidemill.planning.messages import MessageShape

S = TypeVar("S", bound=SinkSection)
RESULT = pa.schema(
    [
        pa.field("output", pa.string()),
        pa.field("file", pa.binary()),
        pa.field("rows", pa.int64()),
        pa.field("suppressed", pa.int64()),
    ]
)
"""What a task tells the driver, and the same as Spark's DDL."""
RESULT_DDL = "output string, file binary, rows long, suppressed long"
OUTPUT = "_tidemill_output"
"""Of united outputs: which one a row belongs to."""
ROW = "_tidemill_row"
"""Of outputs with topics: rows of one identity have one value, and stand together."""
_FLUSH_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class SinkRun:
    """The run that a sink is opened for."""

    loaded: LoadedConfig
    catalog: Catalog
    manifest: Manifest
    folder: Path  # of the run; a sink may keep a file there

    @property
    def run(self) -> str:
        """The run's id."""
        return self.manifest.run

    def section(self, name: str, kind: type[S]) -> S:
        """The YAML's section of an output as it is now, for what no pin holds."""
        pipeline = self.loaded.config.pipelines.get(self.manifest.pipeline)
        found = None if pipeline is None else pipeline.sinks.get(name)
        if not isinstance(found, kind):
            raise RunError(
                f"the run {self.run} writes the output {name!r} to a {kind.noun}, the YAML no "
                "longer says how it is reached",
                where=f"pipeline {self.manifest.pipeline}",
                fix="restore the sink, or start a new run",
            )
        return found


@dataclass(frozen=True)
class LastCommit:
    """The last commit of one run at a place."""

    stamp: BatchStamp
    at: int = 0  # ms since 1970; 0: not known any more


@dataclass(frozen=True)
class View:
    """One state of a place, which can be read again and again while others write to the place.

    A place that keeps no states gives at every reading the rows that are there then.
    """

    columns: pa.Schema
    scan: Callable[[Sequence[str], tuple[int, int] | None], Iterable[pa.RecordBatch]]
    state: int | None = None  # which one: a snapshot; None: there is none
    stamps: Mapping[str, BatchStamp] = field(default_factory=dict)  # by run
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # ranges, the last last


class Sink(ABC):
    """One output of a run, on the driver. Nothing is opened before a method needs it.

    A start calls ``stamps`` and ``check`` before Spark is there, then ``prepare``, and then for
    every batch ``destination`` and ``commit``. A driver may be killed between any two of them, and
    the next driver calls all of them again, for the last batch too.
    """

    place: str
    """Where the rows go, as people are told. It is the pin's."""
    keeps_stamps: ClassVar[bool] = True
    """Whether the place tells which batch of a run it has; a log cannot: it has rows twice."""
    shape: MessageShape | None = None
    """By which key and order Spark arranges the rows before tasks write them; None: as they are."""
    at_start: BatchStamp | None = None
    """See :meth:`prepare`; `stamp.is_repeat` asks for it."""

    def check(self) -> None:  # noqa: B027
        """Raise SinkError if the place cannot be reached with today's settings. Changes nothing."""

    def prepare(self, at_start: BatchStamp | None) -> None:
        """Make what is missing; raise SinkError if what is there does not fit the output.

        ``at_start`` is this run's stamp at the place as the start check has accepted it. The sink
        must not read it again: another driver may have committed since. By default it is only kept.
        """
        self.at_start = at_start

    @abstractmethod
    def destination(self, batch: int = -1) -> Destination:
        """Where tasks write the rows of a batch; −1 stands for all, where tasks outlive a batch."""

    @abstractmethod
    def commit(self, stamp: BatchStamp, written: Sequence[bytes]) -> bool:
        """Make the batch seen, exactly once; returns whether this call did it.

        ``written`` is what the batch's tasks told of this output. The stamp stands at the place in
        the same transaction. A place that has an equal stamp has the batch: what was written again
        is thrown away. A stamp that is ahead is another driver's: SinkError (`stamp.is_repeat`). A
        batch without rows commits nothing. Easy mistake: to repeat a commit whose result is not
        known. It may have landed, so the stamp must be looked at first.
        """

    def discard(self, written: Sequence[bytes]) -> None:  # noqa: B027
        """Throw away what tasks wrote: a lost run, for which this one goes on, gave it already.

        By default it stays where it is: nobody sees it.
        """

    def stamps(self) -> Mapping[str, LastCommit]:
        """The last commit of every run at the place, by run. Empty if the place is not there."""
        return {}

    def rows_in(self, span: tuple[int, int]) -> int:
        """About how many rows with a time in the span (µs) are there; 0 only if there is none.

        Of an output without a time all rows count. A log is not asked: its rows carry their run.
        """
        return 0

    def scan(
        self, columns: Sequence[str], span: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        """Driver: the rows with a time in the span (µs) in batches, with these columns.

        Without a span, and of an output without a time: all rows that are at the place now, in any
        order. A run asks for them to judge its expectations, if the section ``is_readable``. No
        batch may need much memory.
        """
        raise NotImplementedError(self.place)

    def view(self) -> View | None:
        """Driver: the place as it is now, to be compared; None if it is not there.

        Its ``scan`` is like :meth:`scan`; it may be called in any thread.
        """
        raise SinkError(
            f"the rows of {self.place} are not read back, so they cannot be compared",
            fix="compare what its consumers have written",
        )

    def read(self) -> pa.Table:
        """Driver: all rows that are at the place now. Tests ask for them, a run never does."""
        raise SinkError(
            f"the rows of {self.place} are not read back",
            fix="read them as their consumers do",
        )

    def is_there(self) -> bool:
        """Driver: whether the place exists now. `tidemill forget` asks it, before ``drop``."""
        return False

    def lent_to(self, places: Iterable[str]) -> str | None:
        """Driver: which of these places has files of this one, and would lose rows by ``drop``."""
        del places
        return None

    def production(self, run: str, output: str) -> Production:
        """Driver: the place beside which this one, a shadow of the run, stands; see `replacing`.

        Raises SinkError where rows are only ever added, as in a log, and for a place that a person
        has named: it is no shadow.
        """
        raise SinkError(
            f"the output {output!r} goes to {self.place}: what is there cannot be replaced in one "
            "step",
            where=f"output {output}",
            fix="publish outputs that are tables of the catalog; replace rows elsewhere with the "
            "means of that place",
        )

    def drop(self) -> None:  # noqa: B027
        """Driver: delete the place with all its rows; only ever asked of a run's own shadow.

        It may be killed, and is called again then: a place that is half deleted, or is not there,
        is no error.
        """

    def require_apart(self, sources: Mapping[str, SourcePin]) -> None:  # noqa: B027
        """Raise PlanError if the place belongs to one of the run's sources, or to an archive."""


def open_sinks(run: SinkRun) -> dict[str, Sink]:
    """Driver: the sinks of a run's outputs, by output."""
    outputs = run.manifest.outputs.sinks.items()
    return {name: SINKS.find(pin.kind).open(run, name, pin) for name, pin in outputs}


def open_places(run: SinkRun) -> dict[str, Sink]:
    """Driver: all places that a run writes, by name: its outputs, late and dead tables."""
    from tidemill.connectors.sinks.iceberg.table import open_sides

    return {**{sink.place: sink for sink in open_sinks(run).values()}, **open_sides(run)}


def arrow_schema(pin: SinkPin) -> pa.Schema:
    """The columns of an output as executors have them. Needs pyspark."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from tidemill.rows.columns import spark_schema

    shape = StructType.fromJson(json.loads(pin.schema))
    try:
        return spark_schema(to_arrow_schema(shape, timezone="UTC"))
    except Exception as error:
        raise PlanError(
            f"an output column has a type no table can hold: {error}",
            where=pin.place,
            fix="cast it in the pipeline",
        ) from None


class Destination(Protocol):
    """Where the rows of one output go, as an executor needs it: small, and without a catalog.

    It is pickled for Spark's tasks. It may hold secrets, which its ``repr`` must not show. One that
    writes files is a :class:`FileDestination`.
    """

    @property
    def time(self) -> str | None:
        """The output's time column."""

    @property
    def range(self) -> tuple[int, int] | None:
        """Only rows with a time in it are kept."""

    def open(self, name: str) -> Opened:
        """Executor: begin a task's part of a batch."""


class Opened(Protocol):
    """A task's part of an output. What it yields goes to the driver, as :data:`RESULT_DDL` says."""

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Rows of the range, in the order the task has them."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Write everything; after this a commit may make the rows seen (a topic shows them now)."""


@dataclass(frozen=True)
class FileDestination(ABC):
    """A destination of files: a task holds its rows until there are enough for one."""

    time: str | None
    range: tuple[int, int] | None  # only rows with a time in it are kept

    @abstractmethod
    def write(self, rows: pa.Table) -> Iterable[tuple[bytes, int]]:
        """Executor: write files that nobody sees yet; yields what ``commit`` gets, and its rows."""

    def open(self, name: str) -> Opened:
        """A task that runs again writes new files; only those in a commit are ever seen."""
        return _HeldRows(self, name)


class _HeldRows:
    """Rows of one task on their way into files."""

    def __init__(self, target: FileDestination, name: str) -> None:
        self._target, self._name = target, name
        self._held: list[pa.Table] = []

    def take(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Hold the rows; write when there are enough for a file."""
        self._held.append(rows.drop_columns([ROW]) if ROW in rows.schema.names else rows)
        if sum(table.nbytes for table in self._held) > _FLUSH_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Write what is held."""
        held, self._held = self._held, []
        if held:
            for told, rows in self._target.write(pa.concat_tables(held).combine_chunks()):
                yield result(self._name, told, rows, 0)


def cut(rows: pa.Table, target: Destination) -> tuple[pa.Table, int]:
    """The rows whose time is in the run's range, and how many are not."""
    if target.range is None or target.time is None:
        return rows, 0
    times = rows.column(target.time).cast(pa.timestamp("us")).cast(pa.int64())
    low, high = target.range
    inside = pc.fill_null(pc.and_(pc.greater_equal(times, low), pc.less(times, high)), False)
    kept = rows.filter(inside)
    return kept, rows.num_rows - kept.num_rows


def result(output: str, file: bytes | None, rows: int, suppressed: int) -> pa.RecordBatch:
    """What a task tells the driver."""
    told = {"output": output, "file": file, "rows": rows, "suppressed": suppressed}
    return pa.RecordBatch.from_pylist([told], schema=RESULT)

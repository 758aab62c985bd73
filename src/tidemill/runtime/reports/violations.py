"""Read the rows of an output back, and find those that break its expectations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config.pins import About, Check
from tidemill.connectors.archives.filtering import RowFilter
from tidemill.connectors.sinks.contract import arrow_schema
from tidemill.planning.judging.expectations import Violations
from tidemill.rows.rowtext import row_texts
from tidemill.runtime.reports.uniqueness import KeyCounter

if TYPE_CHECKING:
    import polars as pl

    from tidemill.config.pins import SinkPin
    from tidemill.connectors.sinks.contract import Sink

_SAMPLES = 3


def find_violations(
    sink: Sink, pin: SinkPin, checks: Sequence[Check], span: tuple[int, int] | None, folder: Path
) -> tuple[int, dict[Check, Violations]]:
    """How many rows the output has in the span, and those of them that break a check.

    Rows are read once, in the columns of the checks, and once more for samples of what is broken.
    ``folder`` is for what does not fit into memory.
    """
    schema = arrow_schema(pin)
    watches = {each: _watch(each, schema, pin.place, folder) for each in checks}
    columns = dict.fromkeys(name for watch in watches.values() for name in watch.columns)
    rows = 0
    for batch in sink.scan(list(columns) or [pin.time or schema.names[0]], span):
        rows += len(batch)
        for watch in watches.values():
            watch.add(batch)
    counted = {check: watch.count() for check, watch in watches.items()}
    broken = {check: watches[check] for check, count in counted.items() if count}
    samples = _samples(sink, schema, broken, span)
    return rows, {
        check: Violations(count, rows, tuple(samples.get(check, ())))
        for check, count in counted.items()
    }


def _samples(
    sink: Sink, schema: pa.Schema, broken: dict[Check, _Watch], span: tuple[int, int] | None
) -> dict[Check, list[str]]:
    found: dict[Check, list[str]] = {check: [] for check in broken}
    if not broken:
        return found
    for batch in sink.scan(schema.names, span):
        for check, texts in found.items():
            missing = _SAMPLES - len(texts)
            if missing:
                wrong = broken[check].wrong(batch).slice(0, missing)
                texts.extend(row_texts(wrong, schema.names))
        if all(len(texts) == _SAMPLES for texts in found.values()):
            break
    return found


class _Watch(ABC):
    """Looks for the rows that break one check."""

    columns: Sequence[str]

    @abstractmethod
    def add(self, rows: pa.RecordBatch) -> None:
        """Look at some rows."""

    @abstractmethod
    def count(self) -> int:
        """How many rows break the check; called once, after all rows."""

    @abstractmethod
    def wrong(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the rows that break the check; called after ``count``."""


class _EachRow(_Watch):
    """Whether a row breaks the check depends on the row alone."""

    _rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += len(self.wrong(rows))

    def count(self) -> int:
        return self._rows


class _Nulls(_EachRow):
    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def wrong(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pc.is_null(rows.column(self.columns[0])))


class _Unmet(_EachRow):
    def __init__(self, condition: RowFilter) -> None:
        self._condition, self.columns = condition, condition.columns

    def wrong(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._condition.others(rows)


class _Repeated(_Watch):
    def __init__(self, columns: Sequence[str], folder: Path) -> None:
        self.columns, self._keys = columns, KeyCounter(columns, folder)
        self._example: pl.DataFrame | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._keys.add(rows)

    def count(self) -> int:
        found, self._example = self._keys.repeated()
        return found

    def wrong(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of one key, so that one sees how they differ."""
        import polars as pl

        frame = pl.from_arrow(rows.select(list(self.columns)))
        assert isinstance(frame, pl.DataFrame)
        assert self._example is not None
        same = [pl.col(name).eq_missing(self._example[name][0]) for name in self.columns]
        return rows.filter(frame.select(pl.all_horizontal(same)).to_series().to_arrow())


def _watch(check: Check, schema: pa.Schema, place: str, folder: Path) -> _Watch:
    if check.about is About.NOT_NULL:
        return _Nulls(check.columns[0])
    if check.about is About.UNIQUE:
        return _Repeated(check.columns, folder)
    return _Unmet(RowFilter(schema, check.expected, place))

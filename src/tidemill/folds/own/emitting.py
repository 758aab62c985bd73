"""Check the rows that Python code emits one by one against their schema, and make Arrow of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from types import NoneType
from typing import Any

import pyarrow as pa

from tidemill.errors import RunError, nearest

_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Emitter:
    """One output of a step. Types are checked row by row, so that an error names its row.

    A ``strict`` one also finds at once what else would only be found when the table is made.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        time: str | None,
        delay: timedelta | None,
        *,
        strict: bool = False,
    ) -> None:
        self._strict = strict
        self.name = name
        self.schema = schema
        self.rows: list[tuple[Any, ...]] = []
        self._names = tuple(schema.names)
        self._wanted = [_python_types(field.type) for field in schema]
        self._get = itemgetter(*self._names)
        self._single = len(self._names) == 1
        self._seen: set[tuple[type, ...]] = set()
        kinds = enumerate(schema.types)
        self._times = [(i, bool(k.tz)) for i, k in kinds if pa.types.is_timestamp(k)]
        self._nested = any(pa.types.is_nested(kind) for kind in schema.types)
        self._delay = delay
        self._time = -1 if time is None or delay is None else self._names.index(time)

    def add(self, row: Mapping[str, Any], now: datetime) -> None:
        """Check and keep one row."""
        try:
            values = self._get(row)
            if self._single:
                values = (values,)
            if len(row) != len(values):
                raise KeyError
        except (KeyError, TypeError):
            values = self._pick(row)
        kinds = tuple(map(type, values))
        if kinds not in self._seen:
            self._check_types(values, kinds)
        for index, has_zone in self._times:
            if values[index] is not None and (values[index].tzinfo is not None) is not has_zone:
                self._refuse_zone(index, has_zone)
        if self._time >= 0 and values[self._time] is not None:
            self._check_delay(values[self._time], now)
        if self._strict:
            self._check_fit(values)
        self.rows.append(deepcopy(values) if self._nested else values)

    def _error(self, message: str, fix: str, **facts: Any) -> RunError:
        return RunError(f"{self.name}: {message}", fix=fix, output=self.name, **facts)

    def _pick(self, row: object) -> tuple[Any, ...]:
        if not isinstance(row, Mapping):
            fix = f"give a dict with the columns {', '.join(self._names)}"
            raise self._error(f"the row to emit is a {type(row).__name__}", fix)
        for column in row:
            if column not in self._names:
                fix = nearest(str(column), self._names)
                raise self._error(f"there is no column {column!r}", fix, column=column)
        return tuple(row.get(name) for name in self._names)

    def _check_types(self, values: tuple[Any, ...], kinds: tuple[type, ...]) -> None:
        for column, value, wanted in zip(self._names, values, self._wanted, strict=True):
            if value is None or type(value) in wanted:
                continue
            base = next((kind for kind in (bool, datetime) if isinstance(value, kind)), None)
            if base not in (None, *wanted) or not isinstance(value, wanted):
                raise self._wrong(column, value)
        self._seen.add(kinds)

    def _check_fit(self, values: tuple[Any, ...]) -> None:
        for field, value in zip(self.schema, values, strict=True):
            try:
                pa.array([value], field.type)
            except _NOT_ARROW as error:
                raise self._wrong(field.name, value, str(error).splitlines()[0]) from None

    def _wrong(self, column: str, value: object, why: str = "") -> RunError:
        wanted = self.schema.field(column).type
        names = [kind.__name__ for kind in _python_types(wanted)]
        example = f": {names[0]}(value)" if names[0] in ("int", "float", "str") else ""
        return self._error(
            f"the column {column!r} is a {_shown(wanted)}, and the value "
            f"{_short(value)} a {type(value).__name__}{why and f' ({why})'}",
            f"give {' or '.join(names)}{example}",
            column=column,
        )

    def _refuse_zone(self, index: int, has_zone: bool) -> None:
        column, kind = self._names[index], self.schema.types[index]
        raise self._error(
            f"the column {column!r} is a {_shown(kind)}, and the value a datetime "
            f"{'without' if has_zone else 'with'} a zone",
            "give value.replace(tzinfo=UTC)" if has_zone else "give a datetime without one",
            column=column,
        )

    def _check_delay(self, time: datetime, now: datetime) -> None:
        assert self._delay is not None
        if now - time > self._delay:
            raise self._error(
                f"the row's time {time} is {now - time} before ctx.time, and "
                f"delay is {self._delay}",
                "declare a longer delay; operators behind this one count on it",
            )

    def table(self, where: str) -> pa.Table:
        """All rows so far as a table; values that only Arrow finds wrong raise an error here."""
        columns = [
            self._column(field, list(map(itemgetter(index), self.rows)), where)
            for index, field in enumerate(self.schema)
        ]
        return pa.table(columns, schema=self.schema)

    def _column(self, field: pa.Field, values: list[Any], where: str) -> pa.Array:
        try:
            return pa.array(values, field.type)
        except _NOT_ARROW as failed:
            for row, value in zip(self.rows, values, strict=True):
                try:
                    pa.array([value], field.type)
                except _NOT_ARROW as error:
                    shown = dict(zip(self._names, row, strict=True))
                    why = f"{str(error).splitlines()[0]}; the row is {_short(shown, 200)}"
                    wrong = self._wrong(field.name, value, why)
                    raise RunError(
                        wrong.message, where=where, fix=wrong.fix, **wrong.facts
                    ) from None
            raise failed


_PYTHON: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_decimal, (Decimal, int)),
    (pa.types.is_string, (str,)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_date, (date,)),
    (pa.types.is_timestamp, (datetime,)),
    (pa.types.is_list, (list, tuple)),
    (pa.types.is_struct, (dict,)),
)


def _python_types(kind: pa.DataType) -> tuple[type, ...]:
    return next((types for is_it, types in _PYTHON if is_it(kind)), (NoneType,))


def _shown(kind: pa.DataType) -> str:
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)


def _short(value: object, most: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"

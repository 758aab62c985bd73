"""Pair rows with instances: a function of Arrow tables, without Spark, files or a clock.

A row belongs to every instance whose ``on`` columns equal its own and whose period holds its time.
Rows are sorted by group and time, where a group is one combination of values of the ``on`` columns.
The rows of one instance are then one stretch of them, which two binary searches find. So the cost
is that of sorting the rows, plus that of the pairs; an instance without rows costs two searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

TIME = pa.timestamp("us", "UTC")
_GROUP = "__group"
_MOST = 100_000
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairing:
    """Which columns decide that a row belongs to an instance, and which of its own it then gets.

    ``kinds`` are the types in which the columns of ``on`` are compared, in the same order.
    """

    time: str  # of the rows; the other columns are those of the instances
    on: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    start: str
    end: str
    given: tuple[str, ...]  # the id and the parameters, without those of ``on``


class Index:
    """The instances, ready to be paired with any number of rows."""

    def __init__(self, instances: pa.Table, pairing: Pairing) -> None:
        """An instance with a null in a column of ``on`` belongs to no row."""
        self.pairing = pairing
        keys = _keys(instances, pairing)
        sound = keys.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
        places = pa.array(np.flatnonzero(sound.to_numpy()) if pairing.on else range(len(instances)))
        self._instances = instances.take(places.cast(pa.int64())).combine_chunks()
        found = _keys(self._instances, pairing)
        self._groups = found.unique(maintain_order=True).with_row_index(_GROUP)
        self._group = self._group_of(self._instances)
        self._start = _micros(self._instances.column(pairing.start))
        self._end = _micros(self._instances.column(pairing.end))

    @cached_property
    def _given(self) -> pa.Table:
        return self._instances.select(list(self.pairing.given))

    def _group_of(self, table: pa.Table) -> Ints:
        """The number of each row's group; −1 for a row that no instance can hold."""
        if not self.pairing.on:
            return np.zeros(len(table), np.int64)
        keys = _keys(table, self.pairing)
        names = list(self.pairing.on)
        joined = keys.join(self._groups, on=names, how="left", maintain_order="left")
        return joined[_GROUP].cast(pl.Int64).fill_null(-1).to_numpy()

    def pair(self, rows: pa.Table, most: int = _MOST) -> Iterator[pa.Table]:
        """Every row with every instance that it belongs to, in tables of about ``most`` rows.

        The tables have the rows' columns, then those of the instance. A row without a time belongs
        to none.
        """
        if not len(rows) or not len(self._instances):
            return
        rows = rows.combine_chunks()
        times = rows.column(self.pairing.time)
        group, moments = self._group_of(rows), _micros(times)
        held = (group >= 0) & times.is_valid().to_numpy()
        order = np.flatnonzero(held)
        order = order[np.lexsort((moments[order], group[order]))]
        if not len(order):
            return
        numbers, low, count = self._stretches(group[order], moments[order])
        for chosen in _portions(count, most):
            yield self._paired(rows, order, numbers[chosen], low[chosen], count[chosen])

    def _stretches(self, group: Ints, moments: Ints) -> tuple[Ints, Ints, Ints]:
        """The instances that have rows, where the rows of each begin in the order, how many."""
        distinct, ranks = np.unique(moments, return_inverse=True)
        width = len(distinct)
        line = group * width + ranks
        is_here = np.zeros(max(len(self._groups), 1), bool)
        is_here[group] = True
        numbers = np.flatnonzero(is_here[self._group])
        first = self._group[numbers] * width
        low = np.searchsorted(line, first + np.searchsorted(distinct, self._start[numbers]))
        high = np.searchsorted(line, first + np.searchsorted(distinct, self._end[numbers]))
        found = high > low
        return numbers[found], low[found], (high - low)[found]

    def _paired(
        self, rows: pa.Table, order: Ints, numbers: Ints, low: Ints, count: Ints
    ) -> pa.Table:
        """The pairs of some instances."""
        before = np.cumsum(count) - count
        places = np.arange(count.sum()) + np.repeat(low - before, count)
        left = rows.take(pa.array(order[places]))
        right = self._given.take(pa.array(np.repeat(numbers, count)))
        columns = [*left.columns, *right.columns]
        return pa.Table.from_arrays(columns, schema=pa.schema([*left.schema, *right.schema]))


def _portions(count: Ints, most: int) -> Iterator[slice]:
    """Cut instances into portions that have about ``most`` pairs, one instance at least."""
    ends, at = np.cumsum(count), 0
    while at < len(count):
        done = int(ends[at - 1]) if at else 0
        after = max(int(np.searchsorted(ends, done + most, side="right")), at + 1)
        yield slice(at, after)
        at = after


def _keys(table: pa.Table, pairing: Pairing) -> pl.DataFrame:
    """The columns of ``on`` as they are compared."""
    kinds: list[Any] = list(zip(pairing.on, pairing.kinds, strict=True))
    found = {name: table.column(name).cast(kind) for name, kind in kinds}
    return pl.DataFrame(pa.table(found))


def _micros(times: pa.ChunkedArray) -> Ints:
    """Times as microseconds; null is any number."""
    found: Ints = times.cast(TIME).cast(pa.int64()).fill_null(0).to_numpy()
    return found

"""The book of a pipeline's instances: which rows of their table are instances, and which are not.

Somebody else writes the table. A row that is no instance must stop nobody: it is told with its
reason, and the other rows are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidemill.planning.code.params import write
from tidemill.planning.instances.values import Instance
from tidemill.types import to_micros

if TYPE_CHECKING:
    import pyarrow as pa

_Placed: TypeAlias = tuple[int, Instance]


class Columns(Protocol):
    """What the columns of a table of instances are for; a `manifest.InstancesPin` says it.

    ``columns`` has the Arrow types of all of them, as text, as they were when a run was planned.
    """

    @property
    def id(self) -> str:
        """The column of the id."""

    @property
    def start(self) -> str:
        """The column of the period's first moment."""

    @property
    def end(self) -> str:
        """The column of the first moment after the period."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The types by name."""


@dataclass(frozen=True)
class Broken:
    """A row that is no instance: its place in the table, its id if it has one, and why."""

    at: int
    id: Any
    reason: str
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Book:
    """The instances of a table by id, the same as rows, and the rows that are no instances."""

    valid: list[Instance]
    rows: pa.Table  # of the valid ones, in their order
    broken: list[Broken]

    def find(self, text: str) -> Instance | None:
        """The instance with this id, as people write it."""
        return next((each for each in self.valid if str(each.id) == text), None)


def read_book(table: pa.Table, pin: Columns, known: Mapping[Any, Instance] | None = None) -> Book:
    """Sort the rows of a table into instances and broken rows. The order of rows does not matter.

    ``known`` are instances that were seen before, by id. One of them stays what it was: a row that
    says something else of it is broken. Of several rows with one id that nobody knows yet, which
    differ, none is taken, because nobody can tell which of them was there first.
    """
    import pyarrow as pa  # a plan of a pipeline without instances does without

    rows = table.to_pylist()
    strange = list(_strange_columns(table, pin))
    broken, sound = list[Broken](), dict[Any, list[tuple[int, Instance]]]()
    for at, row in enumerate(rows):
        reason = _fault(row, pin, strange)
        if reason is None:
            sound.setdefault(row[pin.id], []).append((at, _instance(row, pin)))
        else:
            broken.append(Broken(at, row.get(pin.id), reason, row))
    places: list[int] = []
    valid: list[Instance] = []
    for key in sorted(sound, key=lambda found: (str(type(found)), found)):
        taken, others = _choose(sound[key], (known or {}).get(key))
        if taken is not None:
            places.append(taken[0])
            valid.append(taken[1])
        broken += [Broken(at, key, reason, rows[at]) for at, reason in others]
    own = [name for name in pin.columns if name in table.column_names]
    chosen = table.select(own).take(pa.array(places, pa.int64()))
    return Book(valid, chosen, sorted(broken, key=lambda each: each.at))


def _strange_columns(table: pa.Table, pin: Columns) -> Iterator[tuple[str, str]]:
    """Columns that were not there, or had another type, when the run was planned."""
    for field in table.schema:
        wanted = pin.columns.get(field.name)
        if wanted is None:
            yield field.name, f"the column {field.name!r} is not known"
        elif wanted != str(field.type):
            yield field.name, f"the column {field.name!r} is a {field.type}, not a {wanted}"


def _fault(row: Mapping[str, Any], pin: Columns, strange: list[tuple[str, str]]) -> str | None:
    """Why a row by itself is no instance; None if it is one."""
    for name, reason in strange:
        if row[name] is not None:
            return reason
    for name in (pin.id, pin.start, pin.end):
        if row.get(name) is None:
            return f"{name} is null"
    if row[pin.start] >= row[pin.end]:
        first, last = (write(row[name]) for name in (pin.start, pin.end))
        return f"{pin.start} {first} is not before {pin.end} {last}"
    return None


def _instance(row: Mapping[str, Any], pin: Columns) -> Instance:
    own = (pin.id, pin.start, pin.end)
    params = {name: row.get(name) for name in pin.columns if name not in own}
    return Instance(row[pin.id], to_micros(row[pin.start]), to_micros(row[pin.end]), params)


def _choose(
    rows: list[_Placed], known: Instance | None
) -> tuple[_Placed | None, list[tuple[int, str]]]:
    """The one row of an id that is taken, and why the others are not."""
    if known is not None:
        return _choose_known(rows, known)
    (_, first), *others = rows
    differ = dict.fromkeys(name for _, each in others for name in each.differences(first))
    if not differ:
        return rows[0], [(at, _twice(len(rows))) for at, _ in others]
    reason = f"{_twice(len(rows))}, which differ in {', '.join(sorted(differ))}; none is taken"
    return None, [(at, reason) for at, _ in rows]


def _choose_known(
    rows: list[_Placed], known: Instance
) -> tuple[_Placed | None, list[tuple[int, str]]]:
    same = [at for at, each in rows if each.is_same(known)]
    reasons = [
        (at, _twice(len(rows)) if at in same else _changed(each, known))
        for at, each in rows
        if at not in same[:1]
    ]
    return ((same[0], known) if same else None), reasons


def _twice(count: int) -> str:
    return f"its id is used by {count} rows"


def _changed(row: Instance, known: Instance) -> str:
    told = "; ".join(row.differences(known).values())
    return f"it was changed ({told}), and an instance never changes"

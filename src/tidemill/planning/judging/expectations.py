"""Expectations of a run: what the YAML says becomes checks, and facts about rows become verdicts.

Everything here is values in, values out. Who counts the rows stands in `runtime/reports`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemill.config.expect import Comparison
from tidemill.config.pins import About, Check
from tidemill.errors import PlanError, nearest
from tidemill.jsonvalue import JsonValue

if TYPE_CHECKING:
    from tidemill.config.expect import OutputExpect
    from tidemill.config.pipeline import PipelineConfig


COUNTED = (About.LATE, About.DEAD, About.ROWS)
"""These need no more than the counts of batches; the others need the rows themselves."""


@dataclass(frozen=True)
class RowCounts:
    """Rows that a run, or an hour of it, has read and written."""

    read: int = 0
    late: int = 0
    dead: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)  # written, by output; as far as known

    def __add__(self, other: RowCounts) -> RowCounts:
        """The rows of both."""
        rows = {
            name: self.rows.get(name, 0) + other.rows.get(name, 0)
            for name in {**self.rows, **other.rows}
        }
        return RowCounts(
            self.read + other.read, self.late + other.late, self.dead + other.dead, rows
        )


@dataclass(frozen=True)
class Reading:
    """Whether the rows of an output can be read back, and of a live run hour by hour."""

    is_readable: bool
    has_time: bool = True
    settles: bool = True  # it is known when no row of an hour comes any more

    def objection(self, ends: bool) -> str | None:
        """Why the rows of a backfill (``ends``) or of a live run are not judged; None: they are."""
        if not self.is_readable:
            return "its rows cannot be read back"
        if ends or (self.has_time and self.settles):
            return None
        if not self.has_time:
            return "a live run judges rows by hours of their time, and the sink names no time:"
        return (
            "a live run judges rows when their hour is complete, and when that is does not follow "
            "from the code; say look_ahead: in the pipeline's YAML"
        )


@dataclass(frozen=True)
class Violations:
    """Rows of an output that break a check."""

    rows: int
    of: int
    samples: tuple[str, ...] = ()  # some of them, each as JSON


@dataclass(frozen=True)
class Verdict(JsonValue):
    """What became of one check. ``is_kept`` is None where nobody could judge it."""

    check: Check
    is_kept: bool | None
    found: str
    samples: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "expect": str(self.check.about),
            "output": self.check.output or None,
            "expected": self.check.expected,
            "kept": self.is_kept,
            "found": self.found,
            "samples": [json.loads(text) for text in self.samples],
        }


def checks_of(config: PipelineConfig, schemas: Mapping[str, str], where: str) -> tuple[Check, ...]:
    """The checks of a pipeline whose outputs have these columns (Spark's JSON).

    What the pipeline expects of its rows holds for every output. A column that is not there is a
    PlanError; whether a filter fits is not asked here.
    """
    found = [
        Check(about, text)
        for about, text in ((About.LATE, config.expect.late), (About.DEAD, config.expect.dead))
        if text is not None
    ]
    for output, sink in config.sinks.items():
        types = {f["name"]: f["type"] for f in json.loads(schemas[output])["fields"]}
        for given in (config.expect, sink.expect):
            for check in _output_checks(output, given):
                _require_columns(check, types, where)
                found.append(check)
    return tuple(dict.fromkeys(found))


def _output_checks(output: str, given: OutputExpect) -> Iterator[Check]:
    if given.rows is not None:
        yield Check(About.ROWS, given.rows, output)
    for column in given.not_null:
        yield Check(About.NOT_NULL, column, output, (column,))
    if given.unique:
        columns = tuple(dict.fromkeys(given.unique))
        yield Check(About.UNIQUE, ", ".join(columns), output, columns)
    if given.where is not None:
        yield Check(About.WHERE, given.where, output)


def _require_columns(check: Check, types: Mapping[str, Any], where: str) -> None:
    for column in check.columns:
        if column not in types:
            raise PlanError(
                f"expect: {check.about} names the column {column!r}, which the output "
                f"{check.output!r} lacks",
                where=where,
                fix=nearest(column, types),
                column=column,
            )
        if check.about is About.UNIQUE and not isinstance(types[column], str):
            raise PlanError(
                f"expect: unique names the column {column!r} of the output {check.output!r}, which "
                f"is of the type {types[column]['type']}: such values are not compared",
                where=where,
                fix="name columns with single values",
                column=column,
            )


def unjudged(
    checks: Iterable[Check], ends: bool, outputs: Mapping[str, Reading]
) -> dict[Check, str]:
    """The checks that nobody will judge, with the reason. ``ends``: the run is a backfill."""
    found = {}
    for check in checks:
        if not check.output:
            continue
        why = outputs[check.output].objection(ends)
        if check.about is About.ROWS:  # of a live run, and of what is not read, they are counted
            is_read = ends and why is None
            if not is_read and len(outputs) > 1:
                found[check] = "its rows are counted together with those of the other outputs"
        elif why is not None:
            found[check] = why
    return found


def judge(
    checks: Iterable[Check],
    counts: RowCounts,
    broken: Mapping[Check, Violations],
    not_judged: Mapping[Check, str],
) -> tuple[Verdict, ...]:
    """The verdicts of a run. ``broken`` has the rows of each check that is about rows."""
    return tuple(
        Verdict(check, None, not_judged[check])
        if check in not_judged
        else judge_counts(check, counts)
        if check.about in COUNTED
        else judge_rows(check, broken[check])
        for check in checks
    )


def judge_counts(check: Check, counts: RowCounts) -> Verdict:
    """The verdict of a check that needs no more than counts."""
    comparison = Comparison.parse(check.expected)
    if check.about is About.ROWS:
        rows = counts.rows[check.output]
        return Verdict(check, comparison.holds(rows, rows), f"{rows:,} rows")
    rows = counts.late if check.about is About.LATE else counts.dead
    found = f"{show_share(rows, counts.read)} ({rows:,} of {counts.read:,} rows)"
    return Verdict(check, comparison.holds(rows, counts.read), found)


_BROKEN = {
    About.NOT_NULL: "{rows:,} of {of:,} rows have no value",
    About.UNIQUE: "{rows:,} of {of:,} rows have the values of another row",
    About.WHERE: "{rows:,} of {of:,} rows do not meet it",
}


def judge_rows(check: Check, found: Violations) -> Verdict:
    """The verdict of a check that is about each row."""
    text = _BROKEN[check.about].format(rows=found.rows, of=found.of)
    return Verdict(check, found.rows == 0, text, found.samples)


def show_share(rows: int, whole: int) -> str:
    """A share in percent. Only no rows are 0 %, and only all rows are 100 %."""
    share = rows / whole if whole else 0.0
    text = f"{share:.3%}".replace("%", "").rstrip("0").rstrip(".")
    if rows and text == "0":
        return "under 0.001 %"
    if rows < whole and text == "100":
        return "over 99.999 %"
    return f"{text} %"

"""The result of a comparison, output by output and as a whole, and how scripts see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.planning.cards import card, one_line
from tidemill.review.comparing.rules import Rules
from tidemill.review.comparing.summary import ColumnDifference, Sample, Summary, match_of
from tidemill.runtime.reports.states import as_json
from tidemill.types import FOREVER_MICROS, SECOND, from_micros, show_instant

KINDS = ("different", "only_here", "only_there")


@dataclass(frozen=True)
class OutputComparison:
    """How one output differs."""

    output: str
    here: str  # the run's table
    there: str
    states: tuple[int | None, int | None]  # of both, as they were compared
    span: tuple[int, int] | None  # µs
    rules: Rules
    summary: Summary
    notes: tuple[str, ...] = ()

    @property
    def match(self) -> float:
        """Equal rows in percent of all."""
        return self.summary.match

    def to_json(self) -> dict[str, Any]:
        """As ``compare --json`` prints it."""
        found, rules = self.summary, self.rules
        width, bins = found.histogram()
        return {
            "output": self.output,
            "tables": {"here": self.here, "there": self.there},
            "range": range_json(self.span),
            "rows": rows_json(found),
            "match": found.match,
            "key": [key.name for key in rules.keys] if rules.is_keyed else None,
            "columns": {name: each.rows for name, each in self.columns().items()},
            "differences": {
                name: {
                    "rows": each.rows,
                    "largest": as_json(each.largest),
                    "mean": as_json(each.mean),
                }
                for name, each in self.columns().items()
            },
            "causes": dict(self.causes()),
            "duplicates": {
                side: {"keys": each.keys, "rows": each.rows}
                for side, each in (("here", found.here), ("there", found.there))
            },
            "histogram": {
                "seconds": width / SECOND,
                "bins": [
                    {"from": instant(start), **dict(zip(KINDS, counts, strict=True))}
                    for start, counts in sorted(bins.items())
                ],
            },
            "worst_keys": [
                {"key": self.key_json(key), "rows": rows} for key, rows in found.worst_keys()
            ],
            "samples": [sample_json(sample) for sample in found.samples],
            "columns_apart": {"here": list(rules.only_here), "there": list(rules.only_there)},
            "ignored": list(rules.ignored),
            "notes": list(self.notes),
        }

    def key_json(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """One of the worst keys, by the names of its columns."""
        names = [column.name for column in self.rules.who]
        return {name: as_json(value) for name, value in zip(names, key, strict=True)}

    def columns(self) -> dict[str, ColumnDifference]:
        """The columns that differ, those with the most rows first."""
        found = self.summary.columns.items()
        return dict(sorted(found, key=lambda each: (-each[1].rows, each[0])))

    def causes(self) -> list[tuple[str, int]]:
        """The causes with their rows, the most frequent first."""
        return sorted(self.summary.causes.items(), key=lambda each: (-each[1], each[0]))


@dataclass(frozen=True, repr=False)
class Comparison:
    """How the outputs of a run differ from what they were compared with."""

    run: str
    pipeline: str
    outputs: tuple[OutputComparison, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line."""
        return one_line("Comparison", self.pipeline, self._facts())

    def _repr_html_(self) -> str:
        return card(f"{self.pipeline}, run {self.run}", self._facts())

    def _facts(self) -> dict[str, str]:
        sums = {name: 0 for name in ("equal", *KINDS)}
        for each in self.outputs:
            for name, rows in rows_json(each.summary).items():
                sums[name] += rows
        told = {name.replace("_", " "): f"{count:,}" for name, count in sums.items()}
        return {"run": self.run, "match": f"{self.match:.6f} %", **told}

    @property
    def equal(self) -> int:
        """The equal rows of all outputs."""
        return sum(each.summary.equal for each in self.outputs)

    @property
    def rows(self) -> int:
        """All rows of all outputs: a pair that differs is one."""
        return sum(each.summary.rows for each in self.outputs)

    @property
    def match(self) -> float:
        """Equal rows in percent of all, cut after six digits: 100 only if none differs."""
        return match_of(self.equal, self.rows)

    def to_json(self) -> dict[str, Any]:
        """As ``compare --json`` prints it: of one output all; of several the sums, and each."""
        head = {"run": self.run, "pipeline": self.pipeline}
        notes = [*self.notes, *(note for each in self.outputs for note in each.notes)]
        if len(self.outputs) == 1:
            return {**head, **self.outputs[0].to_json(), "notes": notes}
        parts = {each.output: each.to_json() for each in self.outputs}
        sums: dict[str, int] = {}
        causes: dict[str, int] = {}
        for part in parts.values():
            for name, rows in part["rows"].items():
                sums[name] = sums.get(name, 0) + rows
            for name, rows in part["causes"].items():
                causes[name] = causes.get(name, 0) + rows
        return {
            **head,
            "rows": sums,
            "match": self.match,
            "columns": {
                f"{output}.{name}": rows
                for output, part in parts.items()
                for name, rows in part["columns"].items()
            },
            "causes": causes,
            "range": self.outputs[0].to_json()["range"],
            "tables": {
                side: [part["tables"][side] for part in parts.values()]
                for side in ("here", "there")
            },
            "outputs": parts,
            "notes": notes,
        }


def rows_json(found: Summary) -> dict[str, int]:
    """The four counts."""
    return {
        "equal": found.equal,
        "different": found.different,
        "only_here": found.only_here,
        "only_there": found.only_there,
    }


def sample_json(sample: Sample) -> dict[str, Any]:
    """A row that differs, as both sides have it."""
    return {
        "kind": sample.kind.replace(" ", "_"),
        "cause": sample.cause,
        "time": instant(sample.time),
        "key": as_json(sample.key),
        "here": as_json(sample.here),
        "there": as_json(sample.there),
    }


def range_json(span: tuple[int, int] | None) -> dict[str, str | None] | None:
    """The range of time, its end excluded; None: all rows were compared."""
    if span is None:
        return None
    end = None if span[1] >= FOREVER_MICROS else instant(span[1])
    return {"from": instant(span[0]), "to": end}


def instant(micros: int | None) -> str | None:
    """A time as people and scripts get it; None of one that is not known."""
    if micros is None:
        return None
    try:
        return show_instant(from_micros(micros))
    except OverflowError:
        return f"{micros} µs since 1970"

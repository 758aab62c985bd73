"""``expect:``: what must hold of the rows of a run, of those it reads and of those it writes."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tidemill.config.section import Columns, Section

_HOLDS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_WRITTEN = re.compile(r"\s*(<=|>=|<|>|=)\s*(\d[\d_]*(?:\.\d+)?)\s*(%?)\s*")
_WHOLE = 100


@dataclass(frozen=True)
class Comparison:
    """``< 5 %`` of all rows, or ``> 0`` rows. Exact: a share is compared as a fraction."""

    sign: str
    number: Fraction
    is_share: bool

    @classmethod
    def parse(cls, text: object) -> Comparison:
        """Raises ValueError for what is no comparison, or for one that nothing can meet."""
        found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(
                f"{text!r} is not a comparison; write one of <, <=, =, >=, > and a number in "
                "quotes: '< 5 %', '> 0'"
            )
        made = cls(found[1], Fraction(found[2].replace("_", "")), bool(found[3]))
        made._check(str(text))
        return made

    def _check(self, text: str) -> None:
        if self.is_share and self.number > _WHOLE:
            raise ValueError(f"{text!r} is out of range; a share is between 0 % and 100 %")
        if not self.is_share and self.number.denominator != 1:
            raise ValueError(
                f"{text!r} is not a number of rows; a share of them has a percent sign: "
                f"'{self.sign} {float(self.number):g} %'"
            )
        if self.sign == "<" and not self.number:
            raise ValueError(f"{text!r} never holds: nothing is below 0; write '= 0'")
        if self.is_share and self.sign == ">" and self.number == _WHOLE:
            raise ValueError(f"{text!r} never holds: nothing is above 100 %; write '= 100 %'")

    def holds(self, count: int, whole: int) -> bool:
        """Whether it holds of ``count`` rows out of ``whole``; the share of no rows is 0."""
        found = Fraction(count * _WHOLE, whole or 1) if self.is_share else Fraction(count)
        return bool(_HOLDS[self.sign](found, self.number))


def _comparison(text: Any) -> Any:
    Comparison.parse(text)
    return text


def _count(text: str) -> str:
    if Comparison.parse(text).is_share:
        raise ValueError(f"{text!r} is a share, and nobody says of what; write a number of rows")
    return text


_TEXT = {"type": "string", "examples": ["< 5 %", "> 0", "= 0"]}
Compared = Annotated[str, BeforeValidator(_comparison), WithJsonSchema(_TEXT)]
"""A comparison with a number of rows, or with their share."""
Counted = Annotated[Compared, AfterValidator(_count), WithJsonSchema(_TEXT)]


class OutputExpect(Section):
    """What must hold of the rows of an output."""

    rows: Counted | None = Field(None, description="How many there are: `> 0`.")
    not_null: Columns = Field([], description="Columns that have a value in every row.")
    unique: Columns = Field([], description="Columns that no two rows have alike; null is a value.")
    where: str | None = Field(
        None, description="A filter that every row meets, in the grammar of `--where`."
    )


class PipelineExpect(OutputExpect):
    """What must hold of a run, and of its rows in every output; else it ends with exit code 4."""

    late: Compared | None = Field(
        None, description="Late rows, of all rows read: `< 5 %`, or a number of rows."
    )
    dead: Compared | None = Field(None, description="Dead rows, of all rows read: `< 0.1 %`.")

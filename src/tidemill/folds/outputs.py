"""`process` on DataFrames: one output, or several by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.folds.operator import Fold, column_of, marked, put, read_input
from tidemill.folds.own.process import BoundProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OUTPUT = "_output"


class Processing(Fold):
    """What `process(…)` returns."""

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The only output, or the first of several."""
        return next(iter(self.outputs(frame).values()))

    def outputs(self, frame: DataFrame) -> dict[str, DataFrame]:
        """All outputs by name. They all come from the same fold, with the same state."""
        bound = self.bind(read_input(frame, self.kind, self.time))
        assert isinstance(bound, BoundProcess)
        chosen = frame.select(*map(column_of, bound.columns))
        made = put(chosen, bound, self.name, self.delay)
        if len(bound.outputs) == 1:
            return dict.fromkeys(bound.outputs, made)
        return {
            name: made.where(column_of(_OUTPUT) == name).select(
                *(
                    marked(column, bound.output_times[name].get(column), made[name][column])
                    for column in schema.names
                )
            )
            for name, schema in bound.outputs.items()
        }

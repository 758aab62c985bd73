"""Write the plans that the tests beside read: `python -m tests.planning.graph.plans.regenerate`."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tests.planning.code.plans.regenerate import COLUMNS, without_noise
from tests.planning.graph.plans import EVENT_TIMES, graph_of, pipelines
from tidemill.config.spark import SparkConfig
from tidemill.jsonvalue import dump_json
from tidemill.pipeline import Pipeline
from tidemill.planning.graph.finding import find_graph
from tidemill.planning.graph.lanes import draw
from tidemill.runtime.code import analyst
from tidemill.runtime.spark.session import build_session

HERE = Path(__file__).parent
PLAYS = pa.schema(COLUMNS)
SHOWS = pa.schema([("k", pa.int64()), ("title", pa.string())])
BOTH = ("clicks", "plays")
PIPELINES = (
    Pipeline(pipelines.chain, BOTH),
    Pipeline(pipelines.folds, ("plays",)),
    Pipeline(pipelines.several, BOTH),
    Pipeline(pipelines.joined, ("plays",), tables=("shows",)),
    Pipeline(pipelines.sql, ("plays",), sql="sums.sql"),
)


def main() -> None:
    spark = build_session(SparkConfig(master="local[1]"), 1, "plans")
    for made in PIPELINES:
        taken: list[Any] = []

        def take(*given: Any, taken: list[Any] = taken) -> Any:
            taken[:] = given
            return find_graph(*given)

        schemas = dict.fromkeys(made.streams, PLAYS)
        tables = dict.fromkeys(made.tables, SHOWS)
        with patch.object(analyst, "find_graph", take):
            facts = analyst.analyse(spark, made, schemas, EVENT_TIMES, set(), tables=tables)
        plans, _, folds = taken
        kept = {
            "plans": [without_noise({**vars(plan), "optimised": []}) for plan in plans],
            "folds": {name: dump_json(use) for name, use in folds.items()},
        }
        path = HERE / f"{made.name}.json"
        path.write_text(json.dumps(kept, separators=(",", ":")) + "\n", "utf-8")
        print(made.name, *draw(facts.graph), sep="\n")
        assert graph_of(made.name) == facts.graph, draw(graph_of(made.name))
    spark.stop()


if __name__ == "__main__":
    main()

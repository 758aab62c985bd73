"""Plans with their texts and lines; `regenerate` writes the files."""

import json
from pathlib import Path

from tidemill.jsonvalue import load_json
from tidemill.planning.code.analysis import OutputPlans
from tidemill.planning.code.chains import FoldUse
from tidemill.planning.graph.finding import find_graph
from tidemill.planning.graph.nodes import Graph

EVENT_TIMES = {"clicks": "ts", "plays": "ts"}


def graph_of(name: str) -> Graph:
    """The graph of the pipeline of this name in `pipelines`."""
    kept = json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8"))
    folds = {key: load_json(FoldUse, text) for key, text in kept["folds"].items()}
    plans = [OutputPlans(**plan) for plan in kept["plans"]]
    return find_graph(plans, EVENT_TIMES, folds)

"""Plans as Spark gives them; `regenerate` writes the files."""

import json
from pathlib import Path

from tidemill.planning.analysis import OutputPlans, PipelineFacts, find_facts


def facts_of(name: str, *sources: str) -> PipelineFacts:
    """The facts of the pipeline of this name in `regenerate`."""
    text = Path(__file__).with_name(f"{name}.json").read_text("utf-8")
    plans = [OutputPlans(**plan) for plan in json.loads(text)]
    return find_facts(plans, dict.fromkeys(sources or ("plays",), "ts"))

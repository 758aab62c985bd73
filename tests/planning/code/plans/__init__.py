"""Plans as Spark gives them; `regenerate` writes the files."""

import json
from pathlib import Path

from tidemill.planning.code.analysis import OutputPlans, PipelineFacts, find_facts


def plans_of(name: str) -> list[OutputPlans]:
    """The plans themselves."""
    text = Path(__file__).with_name(f"{name}.json").read_text("utf-8")
    return [OutputPlans(**plan) for plan in json.loads(text)]


def facts_of(name: str, *sources: str) -> PipelineFacts:
    """The facts of the pipeline of this name in `regenerate`."""
    return find_facts(plans_of(name), dict.fromkeys(sources or ("plays",), "ts"))

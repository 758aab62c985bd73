"""The expectations of a plan: held to the columns of the outputs before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidemill.config.pins import About, Check, SinkPin
from tidemill.planning.judging.expectations import checks_of, unjudged

if TYPE_CHECKING:
    from tidemill.config.pipeline import PipelineConfig
    from tidemill.planning.code.analysis import PipelineFacts


def find_checks(name: str, config: PipelineConfig, facts: PipelineFacts) -> tuple[Check, ...]:
    """The checks of a pipeline; a column or a filter that does not fit is a PlanError."""
    checks = checks_of(config, facts.schemas, f"pipeline {name}")
    for check in checks:
        if check.about is About.WHERE:
            _bind(check, facts.schemas[check.output], f"pipeline {name}, expect: where")
    return checks


def _bind(check: Check, schema: str, where: str) -> None:
    from tidemill.connectors.archives.filtering import RowFilter
    from tidemill.connectors.sinks.contract import arrow_schema

    columns = arrow_schema(SinkPin("", f"output {check.output}", schema))
    RowFilter(columns, check.expected, where)


def expectation_risks(checks: Iterable[Check], config: PipelineConfig, ends: bool) -> Iterator[str]:
    """The expectations that a run will not judge."""
    readable = {name: sink.is_readable for name, sink in config.sinks.items()}
    found = unjudged(checks, ends, readable)
    for why in dict.fromkeys(found.values()):
        names = "; ".join(str(check) for check in found if found[check] == why)
        yield f"expect: not judged: {names}; {why}"

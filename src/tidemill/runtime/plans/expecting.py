"""The expectations of a plan: held to the columns of the outputs before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.config.pins import About, Check, SinkPin
from tidemill.errors import PlanError
from tidemill.planning.judging.expectations import Reading, checks_of, unjudged
from tidemill.planning.ranges import find_margins
from tidemill.types import micros_of

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


def find_settling(
    facts: PipelineFacts, config: PipelineConfig, look_ahead: timedelta | None
) -> dict[str, int]:
    """How long after a time of an output no row of it comes any more (µs), as far as is known.

    It counts from the watermark: a row at *t* depends on no input after *t* plus what the code
    looks ahead, and a fold that holds rows back looks ahead as far at least.
    """
    found = {}
    for name, sink in config.sinks.items():
        if sink.time is not None:
            with suppress(PlanError):  # the plan says that it is not known
                margins = find_margins(facts, [(name, sink.time)], timedelta(), look_ahead)
                found[name] = micros_of(margins.look_ahead)
    return found


def expectation_risks(
    checks: Iterable[Check], config: PipelineConfig, ends: bool, settles: Mapping[str, int]
) -> Iterator[str]:
    """The expectations that a run will not judge."""
    outputs = {
        name: Reading(sink.is_readable, sink.time is not None, name in settles)
        for name, sink in config.sinks.items()
    }
    found = unjudged(checks, ends, outputs)
    for why in dict.fromkeys(found.values()):
        names = "; ".join(str(check) for check in found if found[check] == why)
        yield f"expect: not judged: {names}; {why}"

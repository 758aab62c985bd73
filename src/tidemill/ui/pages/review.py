"""*Review*: a backfill beside production; publish and revert; history and shadows."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from tidemill.errors import TidemillError
from tidemill.runtime.registry import RunState
from tidemill.types import parse_instant, show_instant
from tidemill.ui.charts import Column
from tidemill.ui.failures import failure_of
from tidemill.ui.page import Asked, Facts, Office
from tidemill.ui.pages.run import about

_KINDS = ("different", "only_here", "only_there")
_BINS = 400
_EVERY = 5.0


def facts(office: Office, asked: Asked) -> Facts:
    """The last comparison, what a publish or a revert would do, and what was done before."""
    desk, record = office.desk, office.desk.run(asked.names["run"])
    status = desk.project.status(record.run)
    answer = office.answers.get(f"compare {record.run}")
    looked = asked.text("look") if asked.text("look") in ("publish", "revert") else None
    shadows = desk.kept("shadows", _EVERY, desk.project.review.shadows)
    return {
        **about(office, record, status),
        "command": office.command("compare", record.run),
        "status": status,
        "is_finished": status.state is RunState.FINISHED,
        "answer": answer,
        "asked_for": time.monotonic() - answer.began if answer and not answer.is_there else None,
        "comparison": answer.value if answer else None,
        "compared": _outputs(answer.value) if answer and answer.value else [],
        "failure": failure_of(answer.error) if answer and answer.error else None,
        "look": _looked(office, record.run, looked) if looked and not asked.is_live else None,
        "shadow": [each for each in shadows if each.run == record.run],
        "history": _history(office, record.run, status.outputs),
    }


def _outputs(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each output of a comparison, with its histogram as columns."""
    outputs = list(found["outputs"].values()) if "outputs" in found else [found]
    return [{**each, "columns_drawn": _histogram(each["histogram"])} for each in outputs]


def _histogram(found: dict[str, Any]) -> list[Column]:
    """A column for every stretch of time from the first to the last one with rows that differ."""
    width = timedelta(seconds=found["seconds"])
    bins = {each["from"]: each for each in found["bins"]}
    if not bins:
        return []
    starts = [parse_instant(text) for text in bins]
    many = (max(starts) - min(starts)) // width + 1
    if many > _BINS:  # far apart: those without rows are left out
        return [_column(text, each) for text, each in bins.items()][:_BINS]
    times = [show_instant(min(starts) + width * number) for number in range(many)]
    return [_column(text, bins.get(text, {})) for text in times]


def _column(text: str, counts: dict[str, Any]) -> Column:
    parts = tuple((kind, counts.get(kind, 0)) for kind in _KINDS)
    told = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in parts)
    return Column(f"{text}: {told}", parts)


def _looked(office: Office, run: str, action: str) -> Facts:
    """What an action would do, in the words of its dry run; or why it cannot be done."""
    try:
        found = office.looks.look(office.desk.project, run, action)
    except TidemillError as error:
        return {"action": action, "failure": failure_of(error), "changes": [], "key": ""}
    return {"action": action, "failure": None, "changes": found.changes, "key": found.key}


def _history(office: Office, run: str, outputs: dict[str, str]) -> list[dict[str, Any]]:
    """What was published into the run's production tables, the newest first."""
    places = {place.removesuffix(f"__{run}") for place in outputs.values()}
    project = office.desk.project
    targets = {s.target for each in project.config.pipelines.values() for s in each.sinks.values()}
    found: list[dict[str, Any]] = []
    for place in sorted(places & targets):
        try:
            changes = project.review.history(place)
        except TidemillError:
            continue  # the table is not there yet
        found += [{"table": place, **each.to_json(), "span": each.range} for each in changes]
    return sorted(found, key=lambda each: str(each["at"]), reverse=True)

"""*Rows*, *Late and dead*: what a run wrote, and what it put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.errors import TidemillError
from tidemill.ui.failures import failure_of
from tidemill.ui.page import Asked, Facts, Office
from tidemill.ui.pages.run import about

if TYPE_CHECKING:
    from tidemill.runtime.registry import RunRecord

_SHOWN = 20
SIDES = ("late", "dead")


def facts(office: Office, asked: Asked) -> Facts:
    """The first rows of one output, filtered as ``show --where`` does."""
    record = office.desk.run(asked.names["run"])
    status = office.desk.project.status(record.run)
    output = asked.text("output")
    shown = _rows(office, record, output, asked)
    words = ["show", record.run]
    words += ["--output", output] if output and output not in SIDES else []
    words += [f"--{output}"] if output in SIDES else []
    words += ["--where", where] if (where := asked.text("where")) else []
    return {
        **about(office, record, status),
        "command": office.command(*words),
        "outputs": [*status.outputs, *SIDES],
        "output": output or next(iter(status.outputs), ""),
        "where": asked.text("where") or "",
        **shown,
    }


def late_facts(office: Office, asked: Asked) -> Facts:
    """How late rows were, and the dead ones."""
    project, record = office.desk.project, office.desk.run(asked.names["run"])
    status = project.status(record.run)
    report, trouble = None, None
    try:
        report = project.late(record.run)
    except TidemillError as error:
        trouble = failure_of(error)
    return {
        **about(office, record, status),
        "command": office.command("late", record.run),
        "status": status,
        "report": report,
        "failure": trouble,
        "late": _rows(office, record, "late", asked) if status.totals.late else None,
        "dead": _rows(office, record, "dead", asked) if status.totals.dead else None,
    }


def _rows(office: Office, record: RunRecord, output: str | None, asked: Asked) -> Facts:
    """Rows as plain values; why there are none, if they cannot be read."""
    count = asked.count("rows", _SHOWN, office.limits.rows)
    try:
        place = office.desk.project.rows(record.run, output)
        head = place.head(count, asked.text("where"))
    except TidemillError as error:
        return {"columns": [], "rows": [], "total": 0, "place": "", "failure": failure_of(error)}
    return {
        "columns": head.rows.column_names,
        "rows": head.to_json(),
        "total": head.total,
        "place": place.place,
        "failure": None,
    }

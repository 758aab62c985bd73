"""*State*: what the folds of a run keep, in all and of one key, after any batch that is kept."""

from __future__ import annotations

import json

from tidemill.errors import TidemillError
from tidemill.runtime.reports.rows import plain_rows
from tidemill.runtime.reports.states import ABOUT
from tidemill.ui.failures import failure_of
from tidemill.ui.page import Asked, Facts, Office
from tidemill.ui.pages.run import about


def facts(office: Office, asked: Asked) -> Facts:
    """Summaries of all folds, and the rows of a key that was asked for."""
    project, record = office.desk.project, office.desk.run(asked.names["run"])
    operator, batch = asked.text("operator"), asked.number("batch")
    key = [part.strip() for part in (asked.text("key") or "").split(",") if part.strip()]
    found, rows, trouble, seen = [], None, None, {}
    try:
        found = project.state(record.run, operator, batch)
        if key:
            table = project.state_of(record.run, key, operator, batch)
            rows = plain_rows(table.slice(0, office.limits.rows))
            seen = json.loads(table.schema.metadata[ABOUT])
    except TidemillError as error:
        trouble = failure_of(error)
    words = ["state", record.run, *(["--operator", operator] if operator else [])]
    words += [word for part in key for word in ("--key", part)]
    words += ["--batch", str(batch)] if batch is not None else []
    return {
        **about(office, record, project.status(record.run)),
        "command": office.command(*words),
        "summaries": found,
        "operator": operator or "",
        "batch": "" if batch is None else batch,
        "key": ", ".join(key),
        "key_rows": rows,
        "seen": seen,
        "failure": trouble,
    }

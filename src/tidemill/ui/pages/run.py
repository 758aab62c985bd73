"""*Run*: how far it is, its batches as charts, why it does not move, its log, and its controls."""

from __future__ import annotations

import secrets

from tidemill.project import RunResult
from tidemill.runtime.registry import BatchStretch, RunRecord, RunState
from tidemill.types import FOREVER_MICROS, MILLISECOND, SECOND
from tidemill.ui.charts import Column
from tidemill.ui.page import Asked, Facts, Office
from tidemill.ui.shown import moment

_POINTS = 120
_SHOWN = 12
_LINES = 80
_COMMAND_LINES = 30
DRIVEN = (RunState.RUNNING, RunState.PAUSING, RunState.PAUSED)


def facts(office: Office, asked: Asked) -> Facts:
    """Everything about one run."""
    project, record = office.desk.project, office.desk.run(asked.names["run"])
    status = project.status(record.run)
    found = project.batches(record.run, _POINTS)
    behind = [_behind(each) for each in found]
    launch = office.launches.of_run(record.run)
    return {
        **about(office, record, status),
        "command": office.command("status", record.run, "--watch"),
        "status": status,
        "once": secrets.token_hex(16),
        "share": _share(status),
        "latest": found[-_SHOWN:][::-1],
        "rows": [_column(each) for each in found],
        "pace": [_pace(each) for each in found],
        "behind": behind,
        "last_behind": next((each for each in reversed(behind) if each is not None), None),
        "log": project.log_tail(record.run, _LINES),
        "launch": launch,
        "said": launch.text.splitlines()[-_COMMAND_LINES:] if launch else [],
    }


def about(office: Office, record: RunRecord, status: RunResult) -> Facts:
    """What every page of a run shows at its top, and what may be ordered."""
    is_backfill, state = record.mode == "backfill", status.state
    ended = state in (RunState.FAILED, RunState.CANCELLED)
    return {
        "run": record,
        "state": str(state),
        "is_backfill": is_backfill,
        "orders": {
            "pause": state is RunState.RUNNING,
            "resume": state in (RunState.PAUSED, RunState.PAUSING, RunState.STOPPED)
            or state in (RunState.FAILED, RunState.PLANNED),
            "stop": state in DRIVEN,
            "cancel": state not in (RunState.FINISHED, RunState.CANCELLED),
            "rate": state not in (RunState.FINISHED, RunState.CANCELLED),
            "retry": is_backfill and ended,
        },
    }


def _share(status: RunResult) -> float:
    return status.slices_done / status.slices if status.slices else 0.0


def _title(each: BatchStretch) -> str:
    batches = f"batch {each.first}" if each.first == each.last else f"{each.first} to {each.last}"
    return f"{batches}, until {moment(each.frontier)}"


def _column(each: BatchStretch) -> Column:
    text = f"{_title(each)}: {each.on_time:,} on time, {each.late:,} late, {each.dead:,} dead"
    return Column(text, (("one", each.on_time), ("late", each.late), ("dead", each.dead)))


def _pace(each: BatchStretch) -> Column:
    rate = each.read / each.seconds if each.seconds else 0.0
    return Column(f"{_title(each)}: {rate:,.0f} rows/s, {each.seconds:.1f} s", (("two", rate),))


def _behind(each: BatchStretch) -> float | None:
    """How far the watermark is behind the frontier, which is the clock of the rows (s)."""
    if not each.watermark or each.frontier >= FOREVER_MICROS:
        return None
    return max(0.0, (each.frontier - each.watermark * MILLISECOND) / SECOND)

"""*Pipeline*: its code and YAML, and the switch: live, backfill, or from history into live."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tidemill.errors import TidemillError
from tidemill.types import from_micros, show_instant
from tidemill.ui.asking import ask
from tidemill.ui.charts import Column
from tidemill.ui.commands import Choice
from tidemill.ui.page import Asked, Facts, Office

_LARGEST = 100_000
_RUNS = 8
_PLANNING = 300.0
_POINTS = 240
_HOUR = 3_600_000_000
_PASSWORD = re.compile(
    r"(?im)^(\s*[\"']?[\w.\-]*(?:password|secret|token|credential|jaas|access-key)[\w.\-]*[\"']?\s*:"
    r"\s*)(?!\$\{)(\S.*)$"
)
"""A line of YAML whose value is no variable and looks as if it should be one."""
FIELDS = ("from", "to", "where", "rate", "slice", "warm_up", "look_ahead", "name")


def facts(office: Office, asked: Asked) -> Facts:
    """A pipeline, its last runs, and what the switch proposes."""
    project, name = office.desk.project, office.desk.pipeline(asked.names["name"])
    config = project.config.pipelines[name]
    records = [each for each in project.registry.runs() if each.pipeline == name]
    start, end = _proposed(office)
    return {
        "command": office.command("runs", "--pipeline", name),
        "name": name,
        "config": config,
        "code": _code(project.loaded.base, config),
        "yaml": _PASSWORD.sub(r"\1***", _read(project.loaded.path)),
        "runs": project.runs(name, None, _RUNS)[::-1] if records else [],
        "has_regions": any(
            getattr(each.archive, "region", None) for each in project.config.streams.values()
        ),
        "start": start,
        "end": end,
        "once": secrets.token_hex(16),
    }


def chosen(office: Office, name: str, given: Mapping[str, Sequence[str]]) -> Choice:
    """What a form of the switch says; names that the project does not have are refused."""
    pipeline = office.desk.pipeline(name)
    params = office.desk.project.config.pipelines[pipeline].params

    def one(field: str) -> str:
        return next(iter(given.get(field, ())), "").strip()

    regions = [part.strip() for text in given.get("region", ()) for part in text.split(",")]
    return Choice(
        pipeline,
        one("how") or "backfill",
        {field: one(field) for field in FIELDS},
        tuple(region for region in regions if region),
        {each: one(f"param_{each}") for each in params if one(f"param_{each}")},
    )


def plan_facts(office: Office, choice: Choice, is_wanted: Callable[[], bool]) -> Facts:
    """The plan of a choice, as ``tidemill plan`` tells it, and the command that would start it.

    ``is_wanted`` says whether nothing else was chosen on the same page meanwhile.
    """
    loaded = office.desk.project.loaded
    choice.check()
    start = choice.start(loaded)
    if not choice.has_plan:
        return {"command": start, "plan": None, "columns": [], "slices": []}
    plan = office.desk.kept(
        choice.plan(loaded).text, 5.0, lambda: ask(choice.plan(loaded), _PLANNING, is_wanted)
    )
    return {
        "command": start,
        "plan": plan,
        "slices": plan["slices"],
        "columns": _columns(plan["slices"]),
    }


def _columns(slices: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The rows of the slices over time; of very many slices some together."""
    width = (len(slices) - 1) // _POINTS + 1 if slices else 1
    found = []
    for at in range(0, len(slices), width):
        part = slices[at : at + width]
        rows = sum(sum(each["rows"].values()) for each in part)
        title = f"{part[0]['from']} to {part[-1]['to']}: {rows:,} rows"
        found.append(Column(title, (("one", rows),)))
    return found


def _proposed(office: Office) -> tuple[str, str]:
    """The hours that the archives hold; empty where nobody can tell."""
    first, last = [], []
    for name in office.desk.project.config.streams:
        with suppress(TidemillError):
            found = office.desk.archive(name)
            first += [found.first] if found.first is not None else []
            last += [found.last] if found.last is not None else []
    if not first or not last:
        return "", ""
    begin, end = min(first) // _HOUR * _HOUR, (max(last) // _HOUR + 1) * _HOUR
    return show_instant(from_micros(begin)), show_instant(from_micros(end))


def _code(base: Path, config: Any) -> str:
    """The file that the YAML names, as text: nothing is imported."""
    if config.sql is not None:
        path = base / config.sql
        return _read(path) if "\n" not in config.sql and path.suffix == ".sql" else config.sql
    module = str(config.entry).partition(":")[0].replace(".", "/")
    for path in (base / f"{module}.py", base / module / "__init__.py"):
        if path.is_file():
            return _read(path)
    return f"# {config.entry} is a part of an installed package"


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        return f"# {path.name} cannot be read: {error.strerror}"

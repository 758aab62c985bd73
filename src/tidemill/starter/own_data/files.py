"""The files of a project over a user's own archive: the YAML with its reasons, the pipeline."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tidemill.config.loader import load_config
from tidemill.connectors.archives.opening import archive_of
from tidemill.errors import ConfigError
from tidemill.starter.own_data.delays import show_share
from tidemill.starter.own_data.draft import Draft, identifier
from tidemill.starter.own_data.looking import Wish, look
from tidemill.starter.writing import refuse_existing
from tidemill.types import quoted, show_duration

_PLAIN = re.compile(r"[A-Za-z_.][\w./-]*", re.ASCII)
_SQLITE = "sqlite:///"
_WIDTH = 96


def write_project(folder: Path, wish: Wish) -> Draft:
    """Look at the archive, then write the project; nothing is written if anything is wrong."""
    refuse_existing(folder)
    found = look(wish)
    base = folder.resolve()
    if archive_of(found.pin).covers(found.pin, str(base / ".tidemill")):
        raise ConfigError(
            "the project would lie in the archive's own folder, where its tables would be read as "
            "rows",
            where=str(base),
            fix=f"write it elsewhere: tidemill init ../project --archive {wish.archive}",
        )
    draft = Draft(
        replace(
            found,
            section=_relative(found.section, base, wish.archive),
            catalog=_relative(found.catalog, base, ""),
        )
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("pipelines.py", pipeline_text(draft)), ("tidemill.yaml", yaml_text(draft))):
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
    load_config(folder / "tidemill.yaml")
    return draft


def _relative(section: Mapping[str, Any], base: Path, said: str) -> dict[str, Any]:
    """Local places as the YAML has them: relative to it, unless the user gave an absolute path."""
    if os.path.isabs(said):
        return dict(section)

    def shorten(text: str) -> str:
        if text.startswith(_SQLITE + "/"):
            return _SQLITE + os.path.relpath(text.removeprefix(_SQLITE), base)
        return os.path.relpath(text, base) if text.startswith("/") else text

    return {key: shorten(value) for key, value in section.items()}


def yaml_text(draft: Draft) -> str:
    """tidemill.yaml, with the reasons for what it says."""
    found, times, columns = draft.found, draft.found.times, draft.found.columns
    catalog = {"uri": f"{_SQLITE}.tidemill/catalog.db", "warehouse": ".tidemill/warehouse"}
    archive = {**found.section, "ingest_time": times.ingest, "partition": columns.partition}
    archive |= {"offset": columns.offset, "region": columns.region}
    key = [identifier(columns.key, "key")] if columns.key else []
    sink = {"type": "iceberg", "table": f"marts.{draft.pipeline}", "time": "window_start"}
    others = [name for name in times.candidates if name not in (times.event, times.ingest)]
    lines = [
        *_comment(
            f"Written by 'tidemill init --archive' after a look at {found.looked_at:,} of "
            f"{found.rows:,} rows in {found.files:,} file{'s' * (found.files != 1)}. Change what "
            "you know better; 'tidemill plan' checks it."
        ),
        "",
        "# Where tables are written, and where tables of this project are found.",
        f"catalog: {_flow({**catalog, **found.catalog})}",
        "",
        "streams:",
        f"  {draft.stream}:",
        *_comment(
            "When it happened: chosen by type and name."
            + (f" Other timestamps: {', '.join(others)}." if others else ""),
            4,
        ),
        *_notes(draft, "event_time"),
        f"    event_time: {_scalar(times.event)}",
        *_lateness(draft),
        *_notes(draft, "zone"),
        f"    zone: {_scalar(times.zone)}",
        *_notes(draft, "ingest_time"),
        f"    archive: {_flow(archive)}",
        "",
        "pipelines:",
        f"  {draft.pipeline}:",
        f"    entry: pipelines:{draft.pipeline}",
        "    sinks:",
        f"      output: {_flow({**sink, 'key': [*key, 'window_start']})}",
    ]
    return "\n".join(lines) + "\n"


def _notes(draft: Draft, about: str) -> list[str]:
    return [line for note in draft.notes if note.about == about for line in _comment(note.text, 4)]


def _lateness(draft: Draft) -> list[str]:
    times, delays = draft.found.times, draft.found.times.delays
    if delays is None:
        return ["    lateness: 0"]
    lateness, skew = show_duration(delays.lateness), show_duration(delays.skew)
    about_skew = "No row has an event time after its ingest time."
    if delays.ahead:
        about_skew = (
            f"{show_share(delays.ahead)} of the rows have an event time after their ingest time; "
            f"with this skew {show_share(delays.future)} are too far ahead to be on time."
        )
    return [
        *_comment(
            f"Delays ({times.ingest} − {times.event}) of {delays.rows:,} rows: "
            f"{delays.quantiles()}. With lateness {lateness}, {show_share(delays.late)} of the "
            "rows would be late and go to the run's late table. A longer lateness keeps more rows; "
            "live, every window waits so long. 'tidemill late' shows what came late.",
            4,
        ),
        *_notes(draft, "lateness"),
        f"    lateness: {lateness}",
        *_comment(about_skew, 4),
        f"    skew: {skew}",
    ]


def pipeline_text(draft: Draft) -> str:
    """pipelines.py: one function that counts by window and key."""
    times, columns = draft.found.times, draft.found.columns
    counted = ['F.count("*").alias("rows")']
    names = ["rows"]
    if columns.measure is not None:
        made = ("sum",) if columns.is_exact else ("min", "max")
        for each in made:
            names.append(f"{each}_{identifier(columns.measure, 'value')}")
            counted.append(f"F.{each}({_column(columns.measure)}).alias({_text(names[-1])})")
    by = [f"F.window({_column(times.event)}, {_text(draft.window)})"]
    if columns.key is not None:
        key = identifier(columns.key, "key")
        names.insert(0, key)
        renamed = f"F.col({_column(columns.key)}).alias({_text(key)})"
        by.append(_text(key) if key == columns.key else renamed)
    chosen = ['F.col("window.start").alias("window_start")', *map(_text, names)]
    shown = f" per {columns.key}" if columns.key else ""
    return (
        f'"""Rows of {draft.stream}{shown} in windows of {draft.window}; a beginning."""\n\n'
        "from pyspark.sql import DataFrame\nfrom pyspark.sql import functions as F\n\n"
        "from tidemill import pipeline\n\n\n"
        "@pipeline\n"
        f"def {draft.pipeline}({draft.stream}: DataFrame) -> DataFrame:\n"
        f'    """One row{shown} and window."""\n'
        "    return (\n"
        f"{_call(draft.stream + '.groupBy', by)}{_call('.agg', counted)}{_call('.select', chosen)}"
        "    )\n"
    )


def _call(function: str, arguments: list[str]) -> str:
    """A call as a line of the code, or, if it is too long, as several."""
    line = f"        {function}({', '.join(arguments)})\n"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"            {argument},\n" for argument in arguments)
    return f"        {function}(\n{inner}        )\n"


def _column(name: str) -> str:
    return _text(name if name.isidentifier() else quoted(name))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str, indent: int = 0) -> Iterable[str]:
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _flow(values: Mapping[str, Any]) -> str:
    told = {key: value for key, value in values.items() if value is not None}
    return "{" + ", ".join(f"{key}: {_value(value)}" for key, value in told.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    return _scalar(str(value))


def _scalar(text: str) -> str:
    """A text as YAML reads it back."""
    return text if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text else _text(text)

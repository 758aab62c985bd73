"""Options that several commands share, and their shell completion."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tidemill.errors import ConfigError, TidemillError
from tidemill.types import parse_duration, parse_instant

if TYPE_CHECKING:
    from tidemill.project import Project, RunResult

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_CONFIG = "tidemill.yaml"
STOPPED = 130
_opened: list[Project] = []


def open_project(config: str) -> Project:
    """Load the project of a command; from now on its secrets are removed from printed text."""
    from tidemill.project import load

    project = load(config)
    _opened.append(project)
    return project


def redact(text: str) -> str:
    """The text without the secrets of the projects that this process has opened."""
    for project in _opened:
        text = project.loaded.redact(text)
    return text


def print_json(value: Any) -> None:
    """One object on stdout, for scripts."""
    click.echo(redact(json.dumps(value, indent=2, ensure_ascii=False)))


class Instant(click.ParamType[datetime]):
    """A time with a zone."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Parse a text; a missing zone is an error."""
        return value if isinstance(value, datetime) else _converted(self, parse_instant, value)


class Length(click.ParamType[timedelta]):
    """A duration as people write it."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """Parse a text."""
        return value if isinstance(value, timedelta) else _converted(self, parse_duration, value)


def _converted(kind: click.ParamType[Any], parse: Callable[[str], Any], value: str) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        kind.fail(f"{error.message}; {error.fix}")


def _complete_pipelines(ctx: click.Context, param: Any, start: str) -> list[CompletionItem]:
    return _complete(ctx, start, lambda project: list(project.config.pipelines))


def _complete_runs(ctx: click.Context, param: Any, start: str) -> list[CompletionItem]:
    def names(project: Project) -> list[str]:
        return [text for found in project.runs() for text in (found.run, found.name) if text]

    return _complete(ctx, start, names)


def _complete_both(ctx: click.Context, param: Any, start: str) -> list[CompletionItem]:
    return _complete_pipelines(ctx, param, start) + _complete_runs(ctx, param, start)


def _complete(
    ctx: click.Context, start: str, names: Callable[[Project], list[str]]
) -> list[CompletionItem]:
    from tidemill.project import load

    try:
        found = names(load(ctx.params.get("config") or DEFAULT_CONFIG))
    except (TidemillError, OSError):
        return []
    return [CompletionItem(name) for name in found if name.startswith(start)]


config_option = click.option(
    "--config", "-c", default=DEFAULT_CONFIG, show_default=True, metavar="FILE",
    help="The project's YAML; its paths are relative to it.", type=click.Path(path_type=Path),
)  # fmt: skip
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, expose_value=False, help="Show traces and Spark's messages."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
pipeline_argument = click.argument("pipeline", shell_complete=_complete_pipelines)
run_argument = click.argument("run", shell_complete=_complete_runs)
pipeline_or_run_argument = click.argument(
    "name", metavar="PIPELINE|RUN", shell_complete=_complete_both
)


def common(function: F) -> F:
    """--config, --json and --verbose."""
    return config_option(json_option(verbose_option(function)))


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def finish(result: RunResult, as_json: bool) -> None:
    """Show how a run ended; a backfill that was told to stop exits with 130, like a shell."""
    if as_json:
        print_json(result.to_json())
    else:
        from tidemill.cli.render import show_result

        show_result(result)
    if result.state == "stopped" and result.phase is None:
        sys.exit(STOPPED)


def history_options(function: F) -> F:
    """The options on how history is read, for `plan`, `backfill` and `run`."""
    for option in reversed(
        [
            click.option("--slice", type=Length(), metavar="DURATION",
                         help="Width of a slice: 30min. Never more than max_misalignment."),
            click.option("--slice-rows", type=int, metavar="ROWS",
                         help="Rows per slice instead of a width (default 2,000,000)."),
            click.option("--region", "regions", multiple=True, metavar="NAME",
                         help="Only these regions; may be repeated."),
            click.option("--where", multiple=True, metavar="[SOURCE:]FILTER",
                         help="Only rows that match, pushed to the scan: \"country = 'DE'\"."),
            click.option("--warm-up", type=Length(), metavar="DURATION",
                         help="Input before --from, where it cannot be computed."),
            click.option("--look-ahead", type=Length(), metavar="DURATION",
                         help="Input after --to, where it cannot be computed."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


name_option = click.option(
    "--name",
    help="A name for the run. The same command, given again, continues the run: for containers and "
    "services that restart.",
)
append_option = click.option(
    "--append", is_flag=True, default=None,
    help="Write even if the table has rows of these times, or another live run writes to it: rows "
    "may then be there twice.",
)  # fmt: skip


def range_options(open_end: bool) -> Callable[[F], F]:
    """The options of `plan` and `backfill`; with ``open_end`` the range may have no end."""

    def add(function: F) -> F:
        more = "; without it: the plan of 'run --from', with its seam" if open_end else ""
        for option in (
            click.option("--allow-empty", is_flag=True, help="Accept a range without any rows."),
            history_options,
            click.option("--to", "end", type=Instant(), required=not open_end, metavar="TIME",
                         help=f"The last output time, excluded{more}."),
            click.option("--from", "start", type=Instant(), required=True, metavar="TIME",
                         help="The first output time, included: 2026-01-01T00:00Z."),
        ):  # fmt: skip
            function = option(function)
        return function

    return add

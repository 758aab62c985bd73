"""Options that several commands share, and their shell completion."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from functools import reduce
from importlib import import_module
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


def present(as_json: bool, told: Any, view: str, *values: Any) -> None:
    """Print one object for scripts, or let a view print text: ``render.show_plan``.

    The view's module is loaded by its name only when it is needed, because views load rich and
    Arrow, which `--help` and shell completion should not wait for.
    """
    if as_json:
        print_json(told)
    else:
        module, _, name = view.partition(".")
        getattr(import_module(f"tidemill.cli.{module}"), name)(*values)


class Parsed(click.ParamType[Any]):
    """A text that a function of ours parses; its error becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parse a text."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ConfigError as error:
            self.fail(f"{error.message}; {error.fix}")


class Percent(click.FloatRange):
    """A share in percent. A range lets NaN pass, and nothing is less than NaN."""

    def __init__(self) -> None:
        super().__init__(0, 100)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parse a number from 0 to 100."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number from 0 to 100", param, ctx)
        return found


PERCENT = Percent()
INSTANT = Parsed("time", parse_instant)
LENGTH = Parsed("duration", parse_duration)
EMISSION = Parsed("now|time", lambda text: text if text == "now" else parse_instant(text))


def completed(names: Callable[[Project], Iterable[str]]) -> Callable[..., list[CompletionItem]]:
    """The shell completion of an argument, from the names that a project has."""

    def complete(ctx: click.Context, param: Any, start: str) -> list[CompletionItem]:
        from tidemill.project import load

        try:
            found = list(names(load(ctx.params.get("config") or DEFAULT_CONFIG)))
        except (TidemillError, OSError):
            return []
        return [CompletionItem(name) for name in found if name.startswith(start)]

    return complete


def pipeline_names(project: Project) -> Iterable[str]:
    """The pipelines of a project, for completion."""
    return project.config.pipelines


def run_names(project: Project) -> Iterable[str]:
    """The ids and names of a project's runs, for completion."""
    return [text for found in project.registry.runs() for text in (found.run, found.name) if text]


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which ``--help`` shows them."""
    return lambda function: reduce(lambda done, option: option(done), reversed(options), function)


config_option = click.option(
    "--config", "-c", default=DEFAULT_CONFIG, show_default=True, metavar="FILE",
    help="The project's YAML; its paths are relative to it.", type=click.Path(path_type=Path),
)  # fmt: skip
verbose_option = click.option(
    "--verbose", "-v", is_flag=True, expose_value=False, help="Show traces and Spark's messages."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
pipeline_argument = click.argument("pipeline", shell_complete=completed(pipeline_names))
run_argument = click.argument("run", shell_complete=completed(run_names))
latest_run_argument = click.argument("run", required=False, shell_complete=completed(run_names))
"""A run, by default the latest one."""
runs_argument = click.argument(
    "runs", nargs=-1, metavar="[RUN]…", shell_complete=completed(run_names)
)
pipeline_or_run_argument = click.argument(
    "name",
    required=False,
    metavar="[PIPELINE|RUN]",
    shell_complete=completed(lambda project: [*pipeline_names(project), *run_names(project)]),
)


common: Callable[[F], F] = stacked(config_option, json_option, verbose_option)
"""The options of every command on a project."""


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def finish(result: RunResult, as_json: bool) -> None:
    """Show how a run ended, and exit with the code for it."""
    present(as_json, result.to_json(), "render.show_result", result)
    if result.exit_code:
        sys.exit(result.exit_code)


def show_progress(drive: Callable[..., RunResult], as_json: bool) -> None:
    """Drive a run, show its progress meanwhile, and then how it ended."""
    from tidemill.cli.progress import ProgressLine

    with ProgressLine() as line:
        result = drive(on_progress=line.show, on_activity=line.tell)
    finish(result, as_json)


history_options = stacked(
    click.option("--slice", type=LENGTH, metavar="DURATION",
                 help="Width of a slice: 30min. By default as wide as the rows allow."),
    click.option("--slice-rows", type=int, metavar="ROWS",
                 help="Rows per slice instead of a width (default 2,000,000)."),
    click.option("--region", "regions", multiple=True, metavar="NAME",
                 help="Only these regions; may be repeated."),
    click.option("--where", multiple=True, metavar="[SOURCE:]FILTER",
                 help="Only rows that match, pushed to the scan: \"country = 'DE'\"."),
    click.option("--warm-up", type=LENGTH, metavar="DURATION",
                 help="Input before --from, where it cannot be computed."),
    click.option("--look-ahead", type=LENGTH, metavar="DURATION",
                 help="Input after --to, where it cannot be computed."),
)  # fmt: skip
"""How history is read: for `plan`, `backfill` and `run`."""


def read_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as values by name."""
    from tidemill.planning.code.params import Written

    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip().isidentifier():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE: write {option}")
        if name.strip() in found:
            raise click.BadParameter(f"{name.strip()!r} is given twice")
        found[name.strip()] = Written(value)
    return found


def read_params(ctx: click.Context, param: Any, given: tuple[str, ...]) -> dict[str, str] | None:
    """``--param campaign=spring`` as values by name; None if there are none."""
    return read_pairs(given, "--param campaign=spring") or None


param_option = click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", callback=read_params,
    help="The value of a parameter of the pipeline, instead of the YAML's; may be repeated. It is "
    "kept and shown: not for secrets.",
)  # fmt: skip
name_option = click.option(
    "--name",
    help="A name for the run. The same command, given again, continues the run: for containers and "
    "services that restart.",
)
supervise_option = click.option(
    "--supervise", is_flag=True, help="Start again by itself after a crash."
)
append_option = click.option(
    "--append", is_flag=True, default=None,
    help="Write even if the table has rows of these times, or another live run writes to it: rows "
    "may then be there twice.",
)  # fmt: skip


state_option = click.option(
    "--state", type=click.Path(dir_okay=False), metavar="FILE",
    help="Begin with the state in this file, exactly where its run stood ('tidemill state RUN "
    "--export FILE').",
)  # fmt: skip
emit_option = click.option(
    "--emit-from", type=EMISSION, metavar="now|TIME",
    help="With --from: history before this time only makes state, and no row of it is written.",
)  # fmt: skip


def _several(ctx: click.Context, param: Any, given: tuple[str, ...]) -> tuple[str, ...] | None:
    return given or None


def require_range(options: dict[str, Any], *names: str) -> None:
    """Refuse a command without its range, unless instances are named: their periods are it."""
    told = {"start": "--from", "end": "--to"}
    for name in names if options["instances"] is None else ():
        if options[name] is None:
            context = click.get_current_context()
            raise click.MissingParameter(
                ctx=context, param_hint=f"'{told[name]}'", param_type="option"
            )


def range_options(open_end: bool) -> Callable[[F], F]:
    """The options of `plan` and `backfill`; with ``open_end`` the range may have no end."""
    more = "; without it: the plan of 'run --from', with its seam" if open_end else ""
    return stacked(
        click.option("--from", "start", type=INSTANT, metavar="TIME",
                     help="The first output time, included: 2026-01-01T00:00Z."),
        click.option("--to", "end", type=INSTANT, metavar="TIME",
                     help=f"The last output time, excluded{more}."),
        click.option("--instance", "instances", multiple=True, metavar="ID", callback=_several,
                     help="Only this instance of the pipeline, whole, with no --from and --to; may "
                     "be repeated. By default all whose period overlaps them."),
        history_options,
        click.option("--allow-empty", is_flag=True, help="Accept a range without any rows."),
        param_option,
    )  # fmt: skip

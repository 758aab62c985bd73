"""Write docs/config.md and docs/cli.md from the code; ``--check`` says whether they are current."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tidemill.cli.main import cli
from tidemill.config.archive import ARCHIVES
from tidemill.config.catalog import CatalogConfig
from tidemill.config.expect import OutputExpect, PipelineExpect
from tidemill.config.instances import InstancesConfig
from tidemill.config.pipeline import PipelineConfig, SourceConfig
from tidemill.config.project import ProjectConfig
from tidemill.config.sink import SINKS
from tidemill.config.spark import SparkConfig
from tidemill.config.sparksettings import MEANING, OURS
from tidemill.config.stream import StreamConfig
from tidemill.config.table import TABLES
from tidemill.connectors.logs.files.home import FilesLive, RequestsTopic
from tidemill.connectors.logs.kafka.home import KafkaLive
from tidemill.connectors.logs.tail.home import IcebergLive
from tidemill.errors import ExitCode
from tidemill.types import show_duration

DOCS = Path(__file__).parents[1] / "docs"
SECTIONS: dict[str, type[BaseModel]] = {
    "tidemill.yaml": ProjectConfig,
    "catalog:": CatalogConfig,
    "spark:": SparkConfig,
    "streams: NAME:": StreamConfig,
    **{f"streams: NAME: archive: (type: {name})": ARCHIVES.find(name) for name in ARCHIVES.builtin},
    "streams: NAME: live: (type: kafka)": KafkaLive,
    "streams: NAME: live: (type: iceberg)": IcebergLive,
    "streams: NAME: live: (type: files)": FilesLive,
    "streams: NAME: live: (type: files) requests:": RequestsTopic,
    **{f"tables: NAME: (type: {name})": TABLES.find(name) for name in TABLES.builtin},
    "pipelines: NAME:": PipelineConfig,
    "pipelines: NAME: instances:": InstancesConfig,
    "pipelines: NAME: expect:": PipelineExpect,
    "pipelines: NAME: sinks: OUTPUT: expect:": OutputExpect,
    "pipelines: NAME: sources: ARGUMENT:": SourceConfig,
    **{
        f"pipelines: NAME: sinks: OUTPUT: (type: {kind})": SINKS.find(kind)
        for kind in SINKS.builtin
    },
}
_MADE = "<!-- made by `make docs`; do not edit -->"


def config_reference() -> str:
    """Every key of the YAML."""
    lines = [
        "# tidemill.yaml",
        _MADE,
        "",
        "Looked for in the working folder, or `--config FILE`; relative paths are relative to it. "
        "`${NAME}` is read from the environment and shown nowhere; `${NAME:-default}` need not be "
        "set. Durations are written as people write them: `10 min`, `1h`, `PT15M`. `tidemill "
        "schema` prints the JSON Schema for editors.",
    ]
    for title, model in SECTIONS.items():
        lines += ["", f"## `{title}`", "", (model.__doc__ or "").split("\n\n")[0].strip(), ""]
        lines += ["| key | default | meaning |", "|---|---|---|"]
        for name, field in model.model_fields.items():
            default = _default(field)
            lines.append(f"| `{field.alias or name}` | {default} | {field.description or ''} |")
        if model is SparkConfig:
            lines += _spark_settings()
    return "\n".join(lines) + "\n"


def _spark_settings() -> list[str]:
    """Which of Spark's settings are not free, and why."""
    rows = [
        f"| `{setting.key}` | {' or '.join(f'`{value}`' for value in setting.values) or '*ours*'} "
        f"| {setting.reason}; {setting.fix} |"
        for setting in OURS
    ]
    return [
        "",
        "Settings that the promise of equal rows rests on. Another value is refused here, and a "
        "session from elsewhere (`spark-defaults.conf`, `PYSPARK_SUBMIT_ARGS`, `spark=`) has these "
        "while a run runs; it gets its own back.",
        "",
        "| setting | value | why; what to do |",
        "|---|---|---|",
        *rows,
        "",
        "Settings that change what code means are free, and fixed for the life of a run: its "
        "manifest keeps them, `resume` refuses other ones, and where the YAML gives none Spark's "
        "default holds, whatever a session was told before. `name.` stands for all below it: "
        + ", ".join(f"`{name}`" for name in MEANING)
        + ".",
        "",
        "All others are free: they change how fast a run is, not its rows.",
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}) or isinstance(value, BaseModel):
        return ""
    return f"`{show_duration(value)}`" if hasattr(value, "total_seconds") else f"`{value}`"


def cli_reference() -> str:
    """Every command with its help."""
    lines = ["# The command line", _MADE]
    for name, text in _helps(cli, "tidemill"):
        lines += ["", f"## `{name}`", "", "```", text.rstrip(), "```"]
    return "\n".join([*lines, "", *_exit_codes()]) + "\n"


_EXITS = {
    ExitCode.DONE: "Done. A live run that was told to stop has done its work, too.",
    ExitCode.ERROR: "An error: something failed while it was done, such as user code or a full "
    "disk; or a run is not in the state for it (`pause` of a finished run).",
    ExitCode.MISUSE: "Wrong use: options, the YAML, or the name of a run, pipeline or stream ask "
    "for what cannot be done as written. Nothing was begun, and the same command fails alike.",
    ExitCode.CANCELLED: "The run was cancelled while the command drove it; or the answer to a "
    "question was no, and nothing was done.",
    ExitCode.BROKEN: "The run is finished, and its rows break what `expect:` says.",
    ExitCode.TIMEOUT: "`tidemill wait RUN --timeout 10m` has waited for so long, and "
    "the run goes on.",
    ExitCode.STOPPED: "A backfill was told to stop and `tidemill resume RUN` continues it; or "
    "Ctrl-C broke a command off.",
}
_JSON_ERROR = """\
{
  "error": {
    "message": "there is no run 'nightly'",
    "where": null,
    "fix": "'tidemill backfill' starts one",
    "exit_code": 2
  }
}"""


def _exit_codes() -> list[str]:
    """How commands end, and what an error is for a script."""
    return [
        *("## Exit codes", "", "| code | meaning |", "|---|---|"),
        *(f"| {code.value} | {_EXITS[code]} |" for code in ExitCode),
        "",
        "With `--json`, stdout holds one JSON object, also when a command fails. Its only key is "
        "then `error`, with the same exit code inside; people read the same error as text on "
        "stderr, beside progress and warnings. Commands that drove a run and end with 3, 4 or 130 "
        "print the run's result instead, and `archive check` what it found.",
        *("", "```json", _JSON_ERROR, "```", ""),
        "A named backfill that is finished, started again by the same command, does nothing, says "
        "so (`already_finished` in JSON), and ends as it ended: with 0, or with 4.",
    ]


def _helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, max_content_width=96, terminal_width=96)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            if not command.commands[child].hidden:
                yield from _helps(command.commands[child], f"{name} {child}")


REFERENCES = {"config.md": config_reference, "cli.md": cli_reference}


def main() -> None:
    """Write the references, or check them."""
    stale = []
    for name, make in REFERENCES.items():
        path = DOCS / name
        text = make()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text("utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, "utf-8")
    if stale:
        sys.exit(f"not current: {', '.join(stale)}; run 'make docs'")


if __name__ == "__main__":
    main()

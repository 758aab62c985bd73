"""``init``, ``doctor``, ``schema``, ``completion``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from tidemill.cli.options import config_option, json_option, print_json, redact, verbose_option


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@verbose_option
def init(folder: Path) -> None:
    """Write a small working project into an empty folder: YAML, pipeline, a generated archive."""
    from tidemill.starter.writing import write_starter

    click.echo(f"writing a project and a day of events into {folder.absolute()} …")
    made = write_starter(folder)
    click.echo(f"  tidemill.yaml, pipelines.py, an archive of {made.rows:,} rows\n")
    go = "" if folder == Path() else f"cd {folder} && "
    click.echo("try:")
    span = f"--from {made.start} --to {made.end}"
    click.echo(f"  {go}tidemill plan plays_per_show {span}")
    click.echo(f"  {go}tidemill backfill plays_per_show {span}")
    click.echo(f"  {go}tidemill runs")


@click.command()
@config_option
@json_option
@click.option("--quick", is_flag=True, help="Do not start Spark.")
@verbose_option
def doctor(config: Path, as_json: bool, quick: bool) -> None:
    """Check Java, Spark, the catalog, the tables and the disk; say how to fix what is wrong."""
    from tidemill.starter.checkup import examine

    findings = examine(config, start_spark=not quick)
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            sign = click.style("ok  ", fg="green") if finding.ok else click.style("FAIL", fg="red")
            click.echo(f"{sign}  {finding.name:<10} {redact(finding.found)}")
            if finding.fix:
                click.echo(f"      {'':<10} fix: {redact(finding.fix)}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)


@click.command()
def schema() -> None:
    r"""Print the JSON Schema of tidemill.yaml, for editors.

    \b
    tidemill schema > tidemill.schema.json
    # yaml-language-server: $schema=tidemill.schema.json
    """
    from tidemill.config import ProjectConfig

    print_json({"title": "tidemill.yaml", **ProjectConfig.model_json_schema()})


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the shell's completion script.

    \b
    bash:  eval "$(tidemill completion bash)"
    zsh:   eval "$(tidemill completion zsh)"
    fish:  tidemill completion fish | source
    """
    made = get_completion_class(shell)
    assert made is not None
    root = ctx.find_root().command
    click.echo(made(root, {}, "tidemill", "_TIDEMILL_COMPLETE").source())

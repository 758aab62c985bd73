"""``init``, ``doctor``, ``schema``, ``completion``."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from tidemill.cli.options import config_option, json_option, print_json, redact, verbose_option


@click.command()
@click.argument("folder", default=".", type=click.Path(path_type=Path))
@click.option(
    "--archive",
    metavar="FOLDER|TABLE",
    help="Start from data of yours: a folder of Parquet files, the folder of a Delta "
    "table, or an Iceberg table as namespace.table.",
)
@click.option("--event-time", metavar="COLUMN", help="When it happened; without it: guessed.")
@click.option(
    "--ingest-time", metavar="COLUMN", help="When the log accepted the row; without it: guessed."
)
@click.option("--catalog", multiple=True, metavar="URI|KEY=VALUE",
              help="The catalog of the Iceberg table, as pyiceberg takes it; may be repeated: "
              "--catalog sqlite:///lake/catalog.db --catalog name=lake.")  # fmt: skip
@json_option
@verbose_option
def init(folder: Path, as_json: bool, archive: str | None, **given: Any) -> None:
    r"""Write a small working project: YAML, pipeline, and a generated archive or your own.

    \b
    tidemill init                     in an empty folder, with a day of made-up events
    tidemill init --archive trips     over your own data, which is only read

    With --archive some rows are looked at. The YAML then says, with the reasons in comments, which
    columns are the times, how late rows came and which lateness follows, and has one pipeline that
    counts by window. 'plan' and 'backfill' work at once; no file that is there is overwritten.
    """
    if archive is not None:
        from tidemill.cli.initview import init_own_data

        init_own_data(folder, as_json, archive=archive, **given)
        return
    needless = [name for name, value in given.items() if value]
    if needless:
        raise click.UsageError(f"--{needless[0].replace('_', '-')} needs --archive")
    from tidemill.starter.writing import refuse_existing, write_starter

    refuse_existing(folder)
    if as_json:
        made = write_starter(folder)
        print_json({"rows": made.rows, "from": made.start, "to": made.end})
        return
    click.echo(f"writing a project and a day of events into {folder.absolute()} …")
    made = write_starter(folder)
    click.echo(f"  tidemill.yaml, pipelines.py, an archive of {made.rows:,} rows\n")
    click.echo("try:")
    if folder != Path():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    span = f"--from {made.start} --to {made.end}"
    click.echo(f"  tidemill plan plays_per_show {span}")
    click.echo(f"  tidemill backfill plays_per_show {span}")
    click.echo("  tidemill runs")


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
        print_json([asdict(finding) for finding in findings])
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
    from tidemill.config.project import ProjectConfig

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
    click.echo(made(ctx.find_root().command, {}, "tidemill", "_TIDEMILL_COMPLETE").source())

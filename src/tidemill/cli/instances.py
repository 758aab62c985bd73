"""``instances``: those of a pipeline, to add, list, show and withdraw."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemill.cli.consent import require_yes
from tidemill.cli.options import (
    INSTANT,
    common,
    open_project,
    pipeline_argument,
    present,
    read_pairs,
    redact,
)

if TYPE_CHECKING:
    from tidemill.runtime.instances.desk import InstancesDesk

instance_argument = click.argument("instance", metavar="ID")
pipeline_option = click.option(
    "--pipeline", metavar="PIPELINE", help="Whose instance it is, if several pipelines have the id."
)


@click.group()
def instances() -> None:
    r"""The instances of a pipeline: one pipeline, run for many periods and parameters at once.

    \b
    tidemill instances add guarantee --id sf_august --from … --to … --set city=SF
    tidemill instances list guarantee
    tidemill instances show sf_august
    tidemill instances withdraw sf_august
    """


def _read_values(ctx: click.Context, param: Any, given: tuple[str, ...]) -> dict[str, str]:
    return read_pairs(given, "--set city=SF")


@instances.command()
@pipeline_argument
@click.option("--id", "instance", required=True, metavar="ID", help="No other instance has it.")
@click.option(
    "--from",
    "start",
    type=INSTANT,
    required=True,
    metavar="TIME",
    help="The first moment of its period.",
)
@click.option(
    "--to",
    "end",
    type=INSTANT,
    required=True,
    metavar="TIME",
    help="The first moment after its period.",
)
@click.option(
    "--set",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_read_values,
    help="The value of a parameter, in the type of its column; may be repeated.",
)
@common
def add(
    pipeline: str, instance: str, start: datetime, end: datetime, *, params: dict[str, str],
    config: Path, as_json: bool,
) -> None:  # fmt: skip
    r"""Add an instance: one more row of the table.

    The first one makes the table if it is missing: the id is a text then, and each parameter has
    the type that its value would have in YAML. An instance never changes.

    \b
    tidemill instances add guarantee --id sf_august --from 2026-08-21T00:00Z
        --to 2026-08-27T00:00Z --set city=SF --set vehicle=UberX --set min_rating=4.5
    """
    added = open_project(str(config)).instances(pipeline).add(instance, start, end, params)
    told = {"id": instance, "table": added.table, "made": added.is_new, "unset": [*added.unset]}
    present(as_json, told, "instanceview.show_added", instance, added)


@instances.command("list")
@pipeline_argument
@common
def list_(pipeline: str, config: Path, as_json: bool) -> None:
    """Every instance: its state, its period, how far it is. Broken rows of the table, and why."""
    found = open_project(str(config)).instances(pipeline).list()
    present(as_json, [each.to_json() for each in found.instances], "instanceview.show_list", found)
    for row in found.broken if as_json else ():
        click.echo(redact(f"no instance: {row.id}: {row.reason}"), err=True)


def _desk(config: Path, pipeline: str | None, instance: str) -> InstancesDesk:
    project = open_project(str(config))
    return project.instances_with(instance) if pipeline is None else project.instances(pipeline)


@instances.command()
@instance_argument
@pipeline_option
@common
def show(instance: str, pipeline: str | None, config: Path, as_json: bool) -> None:
    """One instance with its parameters."""
    found = _desk(config, pipeline, instance).show(instance)
    present(as_json, found.whole(), "instanceview.show_instance", found)


@instances.command()
@instance_argument
@pipeline_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def withdraw(
    instance: str, pipeline: str | None, *, yes: bool, config: Path, as_json: bool
) -> None:
    """End an instance for good. What it has given stays; its id is not free again."""
    desk = _desk(config, pipeline, instance)
    desk.show(instance)
    question = f"withdraw the instance {instance!r} of {desk.pipeline}?"
    require_yes(question, yes=yes, unchanged="nothing was withdrawn")
    found = desk.withdraw(instance)
    present(as_json, found.whole(), "instanceview.show_instance", found)

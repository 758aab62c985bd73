"""Publishes, reverts and shadows as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tidemill.cli.render import show_bytes
from tidemill.types import from_micros, show_instant

if TYPE_CHECKING:
    from tidemill.connectors.sinks.replacing import Change, Counts
    from tidemill.review.publishing import ReviewedChange
    from tidemill.review.shadows import DroppedShadow, Shadow


def show_outlook(action: str, found: Sequence[ReviewedChange]) -> None:
    """What would be done with each table."""
    for each in found:
        done = each.outlook.done
        click.echo(f"{each.output}: table {each.place}")
        if done is not None:
            click.echo(f"  done already, {_when(done)}")
            continue
        if each.match is not None:
            click.echo(f"  match  {each.match:.6f}% when it was compared")
        elif action == "publish":
            click.echo(
                "  match  not compared with what is there now: "
                f"'tidemill compare {each.run}' shows what differs"
            )
        for line in (*_counts(each.outlook.counts), *each.outlook.columns):
            click.echo(f"  {line}")


def show_changes(found: Sequence[ReviewedChange]) -> None:
    """What was done with each table."""
    for each in found:
        change = each.change
        if change is None:
            continue
        if each.outlook.done is not None:
            click.echo(f"{each.place}: {_past(change)} already, {_when(change)}; nothing changed")
            other = each.outlook.replaced_by
            if other is not None:
                click.echo(
                    f"  since then {other} was published over rows of it: "
                    f"'tidemill revert {other}' puts them back"
                )
            continue
        click.echo(f"{each.place}: {_past(change)} {change.range}")
        for line in _counts(change.counts):
            click.echo(f"  {line}")
        click.echo(f"  snapshot {change.before} -> {change.after}")


def show_history(table: str, found: Sequence[Change]) -> None:
    """A line per change, the oldest first."""
    if not found:
        click.echo(f"nothing was published into {table}")
    for each in found:
        click.echo(
            f"{show_instant(from_micros(each.at))}  {each.action:<7}  {each.run}  {each.range}  "
            f"rows +{each.counts.rows_in:,} -{each.counts.rows_out:,}  by {each.by}"
        )


def show_shadows(found: Sequence[Shadow]) -> None:
    """A line per shadow, the oldest first."""
    if not found:
        click.echo("there are no shadows")
    for each in found:
        state = each.stranger or each.state or "forgotten"
        told = f"{each.published}ed" if each.published else "not published"
        click.echo(
            f"{each.run}  {each.place}  {state}  {each.rows:,} rows, {show_bytes(each.bytes)}  "
            f"{each.range or 'range not known'}  {told}"
        )


def show_drops(found: Sequence[DroppedShadow]) -> None:
    """What goes, or went."""
    if not found:
        click.echo("no such shadow: nothing goes")
    for each in found:
        shadow = each.shadow
        note = ""
        if shadow.published is not None:
            note = "; it can then no longer be reverted or published again"
        freed = "" if each.freed is None else f", {show_bytes(each.freed)} freed"
        click.echo(f"shadow {shadow.table}  {shadow.rows:,} rows{freed}{note}")


def _counts(counts: Counts) -> list[str]:
    return [
        f"rows   {counts.rows_in:,} come in, {counts.rows_out:,} go",
        f"files  {counts.taken} taken as they are, {counts.copied} copied, {counts.dropped} leave, "
        f"{counts.rewritten} written again without the range's rows",
    ]


def _past(change: Change) -> str:
    return {"publish": "published", "revert": "reverted"}[change.action]


def _when(change: Change) -> str:
    return f"{show_instant(from_micros(change.at))} by {change.by}"

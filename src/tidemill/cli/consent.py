"""Ask before production data is changed or deleted: on a terminal, or by ``--yes``."""

from __future__ import annotations

import sys

import click

from tidemill.errors import DeclinedError


def require_yes(question: str, *, yes: bool, unchanged: str) -> None:
    """Ask on a terminal; elsewhere nobody can answer, and only ``--yes`` goes on."""
    if yes:
        return
    if not is_terminal():
        raise click.UsageError("there is no terminal to ask on: give --yes, or --dry-run to look")
    if not click.confirm(question, err=True):
        raise DeclinedError(f"the answer was no: {unchanged}")


def is_terminal() -> bool:
    """Whether somebody can answer."""
    return sys.stdin is not None and sys.stdin.isatty()

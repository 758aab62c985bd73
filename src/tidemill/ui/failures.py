"""Errors in the words of the command line, with the status that a browser gets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.errors import ExitCode, TidemillError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """What failed, where, and what to do next; ``status`` is HTTP's."""

    status: int
    message: str
    where: str = ""
    fix: str = ""

    @property
    def text(self) -> str:
        """As the command line prints it."""
        return TidemillError(self.message, where=self.where, fix=self.fix).text()


def failure_of(error: Exception) -> Failure:
    """Any error as one of ours; of one that nobody expected the name and the text."""
    if isinstance(error, TidemillError):
        status = 400 if error.exit_code == ExitCode.MISUSE else 409
        return Failure(status, error.message, error.where, error.fix)
    if isinstance(error, OSError):
        return Failure(
            500,
            str(error.strerror or error),
            str(error.filename or ""),
            "check permissions and free space",
        )
    _LOG.info("a page failed", exc_info=error)
    return Failure(
        500, f"{type(error).__name__}: {error}", "", "the same command with --verbose shows more"
    )


def failure_told(told: Mapping[str, Any]) -> TidemillError:
    """The error that a command printed with ``--json``."""
    found = TidemillError(
        str(told.get("message")), where=told.get("where") or "", fix=told.get("fix") or ""
    )
    found.facts["exit_code"] = told.get("exit_code")
    return found

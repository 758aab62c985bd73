"""A run that was started and has no number yet: what its command says meanwhile."""

from __future__ import annotations

from tidemill.errors import RequestError
from tidemill.ui.page import Asked, Facts, Office


def facts(office: Office, asked: Asked) -> Facts:
    """One command that this server has started."""
    launch = office.launches.get(asked.names["key"])
    if launch is None:
        raise RequestError(
            "this server has started no such command", fix="'tidemill runs' lists all"
        )
    return {"command": launch.command, "launch": launch, "said": launch.text}

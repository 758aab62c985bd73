"""Which project a table belongs to: several projects may share one catalog.

A project is the folder that ``home:`` names. It has an id, which its first run writes there; the
place of the folder is only told to people, because the same folder may be seen from many hosts.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from tidemill.storage.location import Location

PROJECT = "project.id"  # beside the runs' folders
_ID = "tidemill.project"
_PLACE = "tidemill.project-home"


def owner_properties(home: Path) -> dict[str, str]:
    """The properties of a table that the project makes for one run alone."""
    file = Location.of(home) / PROJECT
    if _read(home) is None:
        file.write_first(secrets.token_hex(16))
    return {_ID: file.read_text().strip(), _PLACE: f"{socket.gethostname()}:{home}"}


def is_owner(home: Path, properties: Mapping[str, str]) -> bool | None:
    """Whether the table is the project's; None: the table does not say whose it is."""
    found = properties.get(_ID)
    return None if found is None else found == _read(home)


def owner_place(properties: Mapping[str, str]) -> str:
    """Where the project of the table has its home, as host and folder."""
    return properties.get(_PLACE, "its home is not known")


def _read(home: Path) -> str | None:
    try:
        return (home / PROJECT).read_text("utf-8").strip()
    except FileNotFoundError:
        return None

"""Whose clock stamps the topics of a run: the log's own, or the producers'."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.errors import SourceError
from tidemill.planning.risks import clock_risks
from tidemill.runtime.liveplan import is_kafka, open_log
from tidemill.sources.kafka import LogAway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import SourcePin


def log_risks(loaded: LoadedConfig, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
    """What the times of the sources' topics weaken. Only told: nothing fails for it."""
    types = {name: _time_type(loaded, pin) for name, pin in pins.items() if is_kafka(pin)}
    return tuple(clock_risks(pins, types))


def _time_type(loaded: LoadedConfig, pin: SourcePin) -> str | None:
    with suppress(LogAway, SourceError):
        return open_log(loaded, pin).time_type()
    return None

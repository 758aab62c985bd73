"""What the settings of a run's topics weaken: whose clock stamps records, and what is removed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidemill.connectors.logs.kafka.log import LogAway
from tidemill.errors import SourceError
from tidemill.planning.risks import clock_risks, compaction_risks
from tidemill.runtime.plans.liveplan import is_kafka, open_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill.config.loader import LoadedConfig
    from tidemill.planning.manifest import SourcePin


def log_risks(loaded: LoadedConfig, pins: Mapping[str, SourcePin]) -> tuple[str, ...]:
    """What the settings of the sources' topics weaken. Only told: nothing fails for it."""
    found = {name: _settings(loaded, pin) for name, pin in pins.items() if is_kafka(pin)}
    types = {name: kind for name, (kind, _) in found.items()}
    policies = {name: policy for name, (_, policy) in found.items()}
    return (*clock_risks(pins, types), *compaction_risks(pins, policies))


def _settings(loaded: LoadedConfig, pin: SourcePin) -> tuple[str | None, str | None]:
    """Whose time the topic's records have, and how the broker removes records."""
    with suppress(LogAway, SourceError):
        log = open_log(loaded, pin)
        return log.time_type(), log.cleanup_policy()
    return None, None

"""The result of a comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """How the outputs of a run differ from what they were compared with."""

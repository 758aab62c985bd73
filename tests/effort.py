"""How much of what can go on for ever is played: little in the suite, much in ``make torture``."""

import os

_VARIABLE = "TIDEMILL_TESTS"
"""``long``: as ``make torture`` runs these tests."""


def times(suite: int, torture: int) -> int:
    """How often a test does what proves more the more often it is done."""
    return torture if os.environ.get(_VARIABLE) == "long" else suite

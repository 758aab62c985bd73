"""Python loads this at its start: a disturbed run's processes, Spark's workers too, get traps."""

import os

if os.environ.get("TIDEMILL_FAULTS"):
    from tests.faults.traps import lay_traps

    lay_traps()

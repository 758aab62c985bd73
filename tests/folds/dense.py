"""Logs drawn fast and dense: one whole number per row, many rows near each other or at one time."""

from math import prod

from hypothesis import strategies as st

from tests.folds.law import LATENESS, TRIALS, moment

LONGEST = 90
"""The last event time; `cuts(LAST_CUT)` cuts such a log."""
LAST_CUT = LONGEST + LATENESS


def dense_logs(**choices):
    """Logs of on-time rows: the trial, ``at``, and for each other column one of its choices."""
    kinds = [range(LATENESS + 1), range(LONGEST + 1), *choices.values()]
    packed = st.integers(0, prod(map(len, kinds)) - 1)

    def unpack(trial, number):
        drawn = []
        for kind in kinds:
            number, which = divmod(number, len(kind))
            drawn.append(kind[which])
        delay, at, *values = drawn
        return at + delay, {
            "trial": trial,
            "at": moment(at),
            **dict(zip(choices, values, strict=True)),
        }

    return st.lists(packed, min_size=TRIALS, max_size=14 * TRIALS).map(
        lambda numbers: [unpack(i % TRIALS, number) for i, number in enumerate(numbers)]
    )

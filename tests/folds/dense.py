"""Logs drawn fast and dense: one whole number per row, all times near each other.

In a log like this rows of one time, rows at the very end of a horizon and rows at the very
watermark are common, so that an error of one microsecond shows.
"""

from math import prod

from hypothesis import strategies as st

from tests.folds.law import LATENESS, TRIALS, Cut, moment

WITHIN = 4
"""How far folds look in such a log."""
LONGEST = 24
"""The last event time."""
_DELAYS = (0, LATENESS // 2, LATENESS - 2, LATENESS - 1, LATENESS, LATENESS)


def dense_logs(**choices):
    """Logs of on-time rows: the trial, ``at``, and for each other column one of its choices."""
    kinds = [_DELAYS, range(LONGEST + 1), *choices.values()]
    packed = st.integers(0, prod(map(len, kinds)) - 1)

    def unpack(trial, number):
        drawn = []
        for kind in kinds:
            number, which = divmod(number, len(kind))
            drawn.append(kind[which])
        delay, at, *values = drawn
        rest = dict(zip(choices, values, strict=True))
        return at + delay, {"trial": trial, "at": moment(at), **rest}

    return st.lists(packed, min_size=2 * TRIALS, max_size=14 * TRIALS).map(
        lambda numbers: [unpack(i % TRIALS, number) for i, number in enumerate(numbers)]
    )


def dense_cuts():
    """Slicings whose watermarks lie among the event times."""
    low, high = LATENESS - 2, LATENESS + LONGEST + 2
    frontiers = st.lists(st.integers(low, high), min_size=2, max_size=8, unique=True)
    return st.builds(
        Cut, frontiers.map(lambda f: tuple(sorted(f))), st.integers(1, 3), st.integers(0, 2**32)
    )

"""Logs drawn fast and dense: one whole number per row, all times near each other.

In a log like this rows of one time, rows at the very end of a horizon and rows at the very
watermark are common, so that an error of one microsecond shows.
"""

from decimal import Decimal
from math import prod

import pyarrow as pa
from hypothesis import strategies as st

from tests.folds.law import LATENESS, TRIALS, Cut, moment
from tidemill.folds.base import TIME

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


NESTED = pa.schema(
    [
        pa.field("user", pa.decimal128(20, 2), nullable=False),
        pa.field("at", TIME, nullable=False),
        pa.field("tags", pa.map_(pa.string(), pa.int64())),
        pa.field("path", pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))),
        pa.field("price", pa.decimal128(38, 9)),
        pa.field("raw", pa.binary()),
        pa.field("left", pa.float32()),
        pa.field("day", pa.date32()),
        pa.field("nothing", pa.null()),
    ]
)


def nested_rows():
    """Rows with values of every type. A key comes every other millisecond."""
    return [
        {
            "user": Decimal(number % 4) / 4,
            "at": moment(1000 * (number // 2)),
            "tags": None if number % 5 == 0 else [("n", number), ("none", None)],
            "path": [{"x": number}, None],
            "price": Decimal(number) / 8,
            "raw": bytes([number]),
            "left": number / 2,
            "day": None,
            "nothing": None,
        }
        for number in range(40)
    ]

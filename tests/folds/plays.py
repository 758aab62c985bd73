"""Plays of users, for folds that aggregate: random rows, and each aggregate in plain Python."""

import math

import pyarrow as pa
from hypothesis import strategies as st

from tests.folds.law import moment
from tidemill.folds.base import TIME

SCHEMA = pa.schema(
    [
        *(("trial", pa.int64()), ("user", pa.int64()), ("at", TIME), ("seconds", pa.int64())),
        ("share", pa.float64()),
    ]
)
AGG = {
    "plays": "count",
    "known": ("count", "seconds"),
    "seconds": ("sum", "seconds"),
    "shortest": ("min", "seconds"),
    "longest": ("max", "seconds"),
    "mean": ("mean", "seconds"),
    "first": ("first", "seconds"),
    "last": ("last", "seconds"),
    "kinds": ("n_unique", "seconds"),
    "all": ("collect", "seconds"),
    "shares": ("sum", "share"),
    "mean_share": ("mean", "share"),
}


def row(at):
    return st.fixed_dictionaries(
        {
            "user": st.one_of(st.none(), st.integers(1, 2)),
            "at": st.just(moment(at)),
            "seconds": st.one_of(st.none(), st.integers(0, 3)),
            "share": st.one_of(st.none(), st.sampled_from([0.1, 0.7, -1e-30, 1e17])),
        }
    )


def finish(events):
    events = sorted(events, key=lambda e: (e["at"], e["seconds"] is None, e["seconds"]))
    values = [event["seconds"] for event in events if event["seconds"] is not None]
    shares = [event["share"] for event in events if event["share"] is not None]
    return {
        "plays": len(events),
        "known": len(values),
        "seconds": sum(values) if values else None,
        "shortest": min(values, default=None),
        "longest": max(values, default=None),
        "mean": sum(values) / len(values) if values else None,
        "first": events[0]["seconds"] if events else None,
        "last": events[-1]["seconds"] if events else None,
        "kinds": len(set(values)),
        "all": values,
        "shares": math.fsum(shares) if shares else None,
        "mean_share": math.fsum(shares) / len(shares) if shares else None,
    }

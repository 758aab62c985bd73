"""Sessions under the slicing law and the locality law, against an oracle in plain Python."""

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import (
    Cut,
    check_delay,
    check_locality,
    check_lookahead,
    check_slicing,
    cuts,
    logs,
    micros,
    moment,
)
from tidemill.errors import PlanError
from tidemill.folds.base import TIME, Input
from tidemill.folds.sessions import bind_sessions

GAP, LONGEST = 15, 40
SCHEMA = pa.schema(
    [
        *(("trial", pa.int64()), ("user", pa.int64()), ("at", TIME), ("seconds", pa.int64())),
        ("share", pa.float64()),
    ]
)
AGG = {
    "plays": "count",
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


def fold(max_length=None):
    rows = Input("sessions", SCHEMA, "at")
    bound = bind_sessions(rows, ["trial", "user"], "1 s", max_length and "1 s", AGG)
    half = None if max_length is None else max_length // 2
    return type(bound)(bound.keys, rows, GAP, half, bound.aggregates)


def row(at):
    return st.fixed_dictionaries(
        {
            "user": st.one_of(st.none(), st.integers(1, 2)),
            "at": st.just(moment(at)),
            "seconds": st.one_of(st.none(), st.integers(0, 3)),
            "share": st.one_of(st.none(), st.sampled_from([0.1, 0.7, -1e-30, 1e17])),
        }
    )


def oracle(rows, max_length):
    """Sessions by their definition: one event after the other."""
    found, by_user = [], {}
    for _, each in rows:
        by_user.setdefault((each["trial"], each["user"]), []).append(each)
    for user, events in by_user.items():
        events.sort(key=lambda e: (e["at"], e["seconds"] is None, e["seconds"]))
        session, begun, last = [], None, None
        for event in events:
            at = micros(event["at"])
            if last is None or at - last > GAP:
                found += finish(user, session)
                session, begun = [], at
            elif max_length:
                half = max_length // 2
                cut = at // half * half
                if cut - begun >= half and last < cut:
                    found += finish(user, session)
                    session = []
            session.append(event)
            last = at
        found += finish(user, session)
    return found


def finish(user, events):
    if not events:
        return []
    values = [e["seconds"] for e in events if e["seconds"] is not None]
    shares = [e["share"] for e in events if e["share"] is not None]
    return [
        {
            "trial": user[0],
            "user": user[1],
            "session_start": events[0]["at"],
            "session_end": events[-1]["at"],
            "plays": len(events),
            "seconds": sum(values) if values else None,
            "shortest": min(values, default=None),
            "longest": max(values, default=None),
            "mean": sum(values) / len(values) if values else None,
            "first": events[0]["seconds"],
            "last": events[-1]["seconds"],
            "kinds": len(set(values)),
            "all": values,
            "shares": math.fsum(shares) if shares else None,
            "mean_share": math.fsum(shares) / len(shares) if shares else None,
            "session_id": named(*user, micros(events[0]["at"])),
        }
    ]


def named(*whole):
    """The id of a session, value by value in plain Python."""
    size, found = 2**64, 0
    for value in whole:
        word = 0x9E3779B97F4A7C15 if value is None else value % size
        found = mixed((found * 0x100000001B3 + mixed(word)) % size)
    return found - size if found >= size // 2 else found


def mixed(word):
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


@pytest.mark.parametrize("max_length", [None, LONGEST])
@settings(max_examples=80)
@given(logs(row), cuts())
def test_every_slicing_gives_the_oracle_s_sessions(max_length, rows, cut):
    check_slicing(fold(max_length), rows, cut, SCHEMA, oracle(rows, max_length))


@pytest.mark.parametrize("column", ["session_start", "session_end"])
@settings(max_examples=80)
@given(logs(row, size=20), cuts(), st.integers(0, 300))
def test_what_lies_before_the_lookback_does_not_matter(column, rows, cut, begin):
    check_locality(fold(LONGEST), rows, cut, SCHEMA, column, begin)


@pytest.mark.parametrize("column", ["session_start", "session_end"])
@settings(max_examples=40)
@given(logs(row, size=20), cuts(), st.integers(0, 400))
def test_what_lies_beyond_the_lookahead_does_not_matter(column, rows, cut, end):
    check_lookahead(fold(LONGEST), rows, cut, SCHEMA, column, end)


@pytest.mark.parametrize("column", ["session_start", "session_end"])
@settings(max_examples=40)
@given(logs(row, size=20), cuts())
def test_no_session_comes_out_later_than_its_delay(column, rows, cut):
    check_delay(fold(LONGEST), rows, cut, SCHEMA, column)


def test_an_endless_key_is_given_away_as_it_goes():
    rows = [
        (at, {"trial": 0, "user": 1, "at": moment(at), "seconds": 1, "share": 0.5})
        for at in range(0, 4000, 5)
    ]
    cut = Cut(tuple(range(0, 4000, 70)), 1, 1)
    check_slicing(fold(LONGEST), rows, cut, SCHEMA, oracle(rows, LONGEST))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "usr"}, "no column 'usr'"),
        ({"gap": "soon"}, "gap"),
        ({"gap": "0"}, "gap is 0"),
        ({"agg": {"x": ("sum", "at")}}, "which is a timestamp"),
        ({"agg": {"x": ("median", "seconds")}}, "'median'"),
        ({"agg": {"x": "seconds"}}, "is 'seconds'"),
        ({"agg": {"user": "count"}}, "two columns named 'user'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    given = {"key": "user", "gap": "1 s", "max_length": None, "agg": {}, **options}
    with pytest.raises(PlanError) as refused:
        bind_sessions(Input("sessions", SCHEMA, "at"), **given)
    assert message in refused.value.message
    assert refused.value.where == "sessions"

"""Sessions under the slicing law and the locality law, against an oracle in plain Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.folds.law import (
    LATENESS,
    Cut,
    Fine,
    check_reach,
    check_refused,
    check_slicing,
    cuts,
    logs,
    micros,
    moment,
)
from tests.folds.plays import AGG, SCHEMA, finish, row
from tidemill.folds.base import Input
from tidemill.folds.windowed.sessions import sessions

GAP, LONGEST = 15, 40


def fold(max_length=None):
    made = sessions(key=["trial", "user"], gap=GAP, max_length=max_length, agg=AGG)
    return made.bind(Fine("sessions", SCHEMA, "at"))


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
                found += session_of(user, session)
                session, begun = [], at
            elif max_length:
                half = max_length // 2
                cut = at // half * half
                if cut - begun >= half and last < cut:
                    found += session_of(user, session)
                    session = []
            session.append(event)
            last = at
        found += session_of(user, session)
    return found


def session_of(user, events):
    if not events:
        return []
    return [
        {
            "trial": user[0],
            "user": user[1],
            "session_start": events[0]["at"],
            "session_end": events[-1]["at"],
            **finish(events),
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
@settings(max_examples=50)
@given(logs(row), cuts())
def test_every_slicing_gives_the_oracle_s_sessions(max_length, rows, cut):
    check_slicing(fold(max_length), rows, cut, SCHEMA, oracle(rows, max_length))


@settings(max_examples=40)
@given(logs(row, size=20), cuts(), st.integers(0, 400))
def test_sessions_reach_no_further_than_they_declare(rows, cut, at):
    check_reach(fold(LONGEST), rows, cut, SCHEMA, at)


@pytest.mark.parametrize("max_length", [None, LONGEST])
def test_an_event_at_the_very_end_of_the_gap_still_belongs_to_its_session(max_length):
    rows = [
        (ingest, {"trial": 0, "user": 1, "at": moment(at), "seconds": 1, "share": 0.5})
        for ingest, at in [(100, 100), (100 + GAP + LATENESS, 100 + GAP), (172, 132)]
    ]
    for frontier in range(150, 175):  # the watermark reaches 100 + GAP, and the event is to come
        cut = Cut((frontier,), 1, 0)
        check_slicing(fold(max_length), rows, cut, SCHEMA, oracle(rows, max_length))


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
    made = sessions(**{"key": "user", "gap": "1 s", **options})
    check_refused(made.bind, Input("sessions", SCHEMA, "at"), message)

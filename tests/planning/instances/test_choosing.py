"""Which instances a backfill computes, what a plan expects of them, and what a list tells."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tidemill.errors import PlanError
from tidemill.planning.code.chains import PairUse
from tidemill.planning.instances.book import Book, Broken
from tidemill.planning.instances.choosing import choose
from tidemill.planning.instances.expecting import expect_pairs, range_of
from tidemill.planning.instances.listing import InstanceStatus, Known, list_instances
from tidemill.planning.instances.values import Instance, InstanceState
from tidemill.planning.statistics import Extent, SourceStatistics
from tidemill.types import BEGINNING, FOREVER, SECOND, TimeRange, from_micros, to_micros

T0 = datetime(2026, 8, 21, tzinfo=UTC)
HOUR = timedelta(hours=1)


def instance(name, start, end, **params):
    return Instance(name, to_micros(T0 + start * HOUR), to_micros(T0 + end * HOUR), params)


A, B, C = instance("a", 0, 2, city="SF"), instance("b", 2, 4, city="NY"), instance("c", 9, 10)
BOOK = Book([A, B, C], pa.table({}), [Broken(3, "d", "since is null", {})])
ALWAYS = TimeRange(BEGINNING, FOREVER)


def chosen(*ids, start=None, end=None, withdrawn=()):
    span = ALWAYS if start is None else TimeRange(T0 + start * HOUR, T0 + end * HOUR)
    return [each.id for each in choose(BOOK, ids, span, withdrawn, "pipeline p")]


def test_a_range_chooses_whole_instances_and_ids_exactly_these():
    assert chosen() == ["a", "b", "c"]
    assert chosen(start=1, end=2) == ["a"]
    assert chosen(start=1, end=3) == ["a", "b"]
    assert chosen("c", "a") == ["a", "c"]
    assert chosen("a", start=1, end=2) == ["a"]
    assert chosen(withdrawn={"a"}) == ["b", "c"]
    assert range_of([A, C]) == TimeRange(T0, T0 + 10 * HOUR)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chosen("x"), "there is no instance 'x'"),
        (lambda: chosen("d"), "the row of 'd' is no instance: since is null"),
        (lambda: chosen("a", withdrawn={"a"}), "the instance 'a' is withdrawn"),
        (lambda: chosen("a", "c", start=0, end=5), "the period of the instance 'c' has no moment"),
        (lambda: chosen(start=5, end=8), "no instance has a period that overlaps"),
    ],
)
def test_what_cannot_be_chosen_is_told(call, words):
    with pytest.raises(PlanError, match=words):
        call()


def test_pairs_are_expected_by_the_rows_of_the_periods():
    first = to_micros(T0)
    extent = Extent("f", first, first + 10 * 3600 * SECOND - 1, 1_000, 1)
    statistics = {"trips": SourceStatistics((extent,))}
    everyone, by_city = (PairUse("p", "p", "id", on, "t") for on in ((), ("city",)))
    assert expect_pairs([A, B], [everyone], statistics) == 400
    assert expect_pairs([A, B], [by_city], statistics) == 200
    assert expect_pairs([A, A, B], [by_city, everyone], statistics) == 900
    twice = {"trips": statistics["trips"], "more": statistics["trips"]}
    assert expect_pairs([A, B], [everyone], twice) == 400
    assert expect_pairs([A], [everyone], {}) == 0


def test_a_list_tells_what_is_known():
    live = InstanceStatus(B, InstanceState.CATCHING_UP, B.start, 7, 40.0, 3.5)
    found = list_instances(BOOK, Known({"c"}, {"b": live}))
    assert [each.state for each in found] == ["waiting", "catching up", "withdrawn"]
    assert found[0].to_json() == {
        "id": "a", "state": "waiting", "from": "2026-08-21T00:00Z", "to": "2026-08-21T02:00Z",
        "watermark": None, "rows": None, "created": None, "percent": None, "eta": None,
    }  # fmt: skip
    told = found[1].whole()
    assert told["params"] == {"city": "NY"} and told["watermark"] == "2026-08-21T02:00Z"
    assert (told["rows"], told["percent"], told["eta"]) == (7, 40.0, 3.5)
    late = list_instances(BOOK, Known({"b"}, {"b": live}))[1]
    assert (late.state, late.rows, late.percent) == ("withdrawn", 7, None)
    at = from_micros(A.start)
    odd = Instance(5, A.start, A.end, {"day": at.date(), "n": 1.5, "at": at})
    params = InstanceStatus(odd, InstanceState.LIVE).whole()["params"]
    assert params == {"day": "2026-08-21", "n": 1.5, "at": "2026-08-21T00:00:00Z"}

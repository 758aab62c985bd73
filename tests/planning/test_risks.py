from datetime import UTC, datetime, timedelta

import pytest

from tests.manifests import make_pin
from tidemill.planning.manifest import ArchivePin
from tidemill.planning.ranges import Margins
from tidemill.planning.risks import (
    allowance_risks,
    callback_risks,
    describe_lateness,
    expiry_risks,
    margin_risks,
    range_risks,
    rounding_risks,
)
from tidemill.planning.statistics import Extent, SourceStatistics
from tidemill.types import TimeRange, to_micros

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEEDED = TimeRange(NOON, NOON + 6 * HOUR)
ARCHIVE = ArchivePin("iceberg", "a.plays", 5)
PIN = make_pin("plays", ARCHIVE, "e", "i", lateness=600_000_000)


def until(hours, **event):
    start = to_micros(NOON)
    return SourceStatistics(
        (Extent("f", start, start + int(hours * 3_600_000_000), 10, 1, **event),)
    )


@pytest.mark.parametrize(
    ("now", "statistics", "risks"),
    [
        (NOON + 9 * HOUR, until(6), []),
        (NOON + 9 * HOUR, until(5.5), []),
        (NOON + 9 * HOUR, until(3), ["plays ends at 2026-01-01T15:00:00.001Z, before the input"]),
        (NOON + 3.5 * HOUR, until(3), ["the range needs input until 2026-01-01T18:00Z, which has"]),
        (NOON + 9 * HOUR, SourceStatistics(()), ["plays has no rows in [2026-01-01T12:00Z,"]),
    ],
)
def test_an_archive_that_ends_too_early_is_said(now, statistics, risks):
    found = list(range_risks(NEEDED, now, {"plays": statistics}))
    assert len(found) == len(risks)
    assert all(text.startswith(risk) for text, risk in zip(found, risks, strict=True))


def test_margins_that_were_said_are_kept_in_sight():
    assert list(margin_risks(Margins(HOUR, HOUR, ""), None, None)) == []
    found = list(margin_risks(Margins(HOUR, timedelta(), ""), HOUR, timedelta()))
    assert found == [
        "warm_up is 1h because you said so; it is not computed",
        "look_ahead is 0 because you said so; it is not computed",
    ]


def test_a_margin_that_is_too_small_is_told_with_what_the_pipeline_needs():
    margins = Margins(HOUR, timedelta(), "", computed=(HOUR, 2 * HOUR))
    found = list(margin_risks(margins, HOUR, timedelta()))
    assert found == [
        "warm_up is 1h because you said so; it is not computed",
        "look_ahead is 0 because you said so, and the pipeline needs 2h: rows at the range's end "
        "may differ from those of a live run; leave look_ahead out, and it is computed",
    ]


def test_what_is_used_against_the_advice_is_said():
    (found,) = allowance_risks(["first"])
    assert found.startswith("first is allowed by the YAML")


@pytest.mark.parametrize(("hours", "said"), [(7, False), (9, True)])
def test_a_snapshot_close_to_its_end_is_said(hours, said):
    found = list(expiry_risks({"plays": PIN}, {"plays": (hours * HOUR, 10 * HOUR)}))
    assert bool(found) is said
    if said:
        assert found[0].startswith("the snapshot 5 of a.plays is 9h old and snapshots may expire")


def test_what_statistics_tell_of_late_rows():
    first = to_micros(NOON)
    assert describe_lateness(PIN, until(1)) == "not known from statistics"
    assert describe_lateness(PIN, SourceStatistics(())) == "not known from statistics"
    on_time = until(1, event=(first - PIN.times.lateness, first))
    assert describe_lateness(PIN, on_time) == "no file can hold a late row"
    late = until(1, event=(first - 2 * PIN.times.lateness, first))
    assert describe_lateness(PIN, late) == (
        "1 of 1 files may hold events older than lateness 10min; the oldest by up to 1h 20min"
    )


def test_sums_that_spark_rounds_are_said():
    (found,) = rounding_risks(["avg(n)"])
    assert found.startswith("avg(n) is added up by Spark in floating point")
    assert "tidemill.windows" in found


def test_rows_that_are_seen_before_the_commit_cannot_be_held_back():
    (risk,) = callback_risks("house:gate", ["alerts"])
    assert "before_commit house:gate cannot hold back the output 'alerts'" in risk
    assert list(callback_risks(None, ["alerts"])) == []
    assert list(callback_risks("house:gate", [])) == []

"""Each cause, planted in real tables, manifests and stamps, and named rightly. No Spark."""

from datetime import timedelta

import pytest

from tests.manifests import change, make_manifest, make_pin
from tests.review.stage import LIVE, PRODUCTION, RUN, SHADOW, Review, aside, at, row
from tidemill.review.comparing.causes import Evidence, Writer, explain
from tidemill.review.comparing.evidence import reach_of, writer_of
from tidemill.types import FOREVER_MICROS

ROWS = [row(minutes, key) for minutes in range(0, 600, 10) for key in (1, 2)]
WHOLE = {"ends": False, "begin": at(-600), "boundaries": (at(-700), at(-600)), "hours": 9_999}
"""A live run that has read all that the backfill reads."""


def causes(folder, ours, theirs, **live):
    """The causes of a comparison; rows of both runs, options of the live one."""
    review = Review.make(folder)
    late, dead = live.pop("late_rows", ((), ())), live.pop("dead_rows", ((), ()))
    read = live.pop("read", at(1_440))
    for run, table, rows, more in ((RUN, SHADOW, ours, {}), (LIVE, PRODUCTION, theirs, live)):
        side = int(run == LIVE)
        manifest = review.run(run, table, **more)
        review.write(manifest, rows, read)
        for aside_rows, is_dead in ((late[side], False), (dead[side], True)):
            if aside_rows:
                review.put_aside(manifest, *aside_rows, dead=is_dead)
    return review.compare()


def changed(*which):
    """The rows, those of these minutes with another word."""
    return [each | ({"word": "other"} if each["at"] in map(at, which) else {}) for each in ROWS]


def test_late_dead_and_clock_by_the_rows_that_only_one_run_put_aside(tmp_path):
    theirs = changed(100, 200, 300, 400, 500)
    live_late = [
        aside(103, 1),  # in the window of key 1, and not of key 2
        aside(205, 1, reason="clock"),
        aside(400, 2), aside(410, 1), aside(399.9, 1),
        aside(505, 1),  # late in both: it explains nothing
        aside(502, 2, ingest_time=at(1_500)),  # the backfill has not read it: nor has it counted it
    ]  # fmt: skip
    dead = aside(300, 2, event_time=None, reason="no event time", ingest_time=at(312))
    found = causes(
        tmp_path, ROWS, theirs, **WHOLE,
        late_rows=([aside(505, 1)], live_late), dead_rows=((), [dead]),
    )  # fmt: skip
    why = {(each["time"][11:16], each["key"]["key"]): each["cause"] for each in found["samples"]}
    assert found["causes"] == {"late": 2, "clock": 1, "dead": 1, "not explained": 6}
    assert why["01:40", 1] == "late" and why["06:40", 2] == "late"
    assert why["03:20", 1] == "clock" and why["05:00", 2] == "dead"


def test_a_gap_is_what_no_run_of_production_has_read(tmp_path):
    live = {"ends": False, "begin": at(-600), "boundaries": (at(100),), "hours": 9_999}
    theirs = [each for each in changed(50) if at(40) < each["at"] < at(390)]
    found = causes(tmp_path, ROWS, theirs, **live, read=at(420))
    # Read from minute 100 to 420: windows from 100 on are whole, and those to 400 are closed.
    assert found["rows"]["only_here"] == len(ROWS) - len(theirs)
    gap = [each for each in ROWS if each["at"] < at(100) or each["at"] >= at(400)]
    alone = [each for each in gap if not at(50) < each["at"] < at(390)]
    assert found["causes"]["gap"] == len(alone)
    assert found["causes"]["not explained"] == 2  # minute 390: it was read, and is not there


def test_other_code(tmp_path):
    found = causes(tmp_path, ROWS, changed(100), **WHOLE, code="with a bug")
    assert found["causes"] == {"other code": 2}


def test_other_lateness(tmp_path):
    found = causes(tmp_path, ROWS, changed(100), **WHOLE, lateness=timedelta(minutes=1))
    assert found["causes"] == {"other lateness": 2}


def test_production_has_it_twice(tmp_path):
    found = causes(tmp_path, ROWS, [*ROWS, ROWS[3], ROWS[3] | {"word": "again"}], **WHOLE)
    assert found["causes"] == {"twice": 2}
    assert found["rows"] == {
        "equal": len(ROWS), "different": 0, "only_here": 0, "only_there": 2
    }  # fmt: skip
    assert found["duplicates"] == {"here": {"keys": 0, "rows": 0}, "there": {"keys": 1, "rows": 3}}


def test_what_nobody_knows_is_not_explained(tmp_path):
    found = causes(tmp_path, ROWS, changed(100), **WHOLE)
    assert found["causes"] == {"not explained": 2}


def test_a_table_that_others_write_has_no_gaps(tmp_path):
    review = Review.make(tmp_path)
    review.write(review.run(RUN, SHADOW), ROWS)
    review.stage.write(PRODUCTION, ROWS[:50])
    assert review.compare()["causes"] == {"not explained": len(ROWS) - 50}


def test_a_recovered_run_covers_what_the_lost_one_had_read(tmp_path):
    review = Review.make(tmp_path)
    lost = review.run("lost", PRODUCTION, ends=False, begin=at(0), boundaries=(at(0),))
    again = change(lost, run="again", recovers="lost", boundaries=(at(300),))
    reach = reach_of(lost)
    known = {"lost": lost, "again": again}
    minute = 60_000_000
    found = writer_of("again", None, known, reach, lost.times.output[0] + 600 * minute)
    assert found.covers == (lost.times.output[0], lost.times.output[0] + 580 * minute)
    gone = writer_of("again", None, {**known, "lost": None}, reach, 10**18)
    assert gone.covers is None


@pytest.mark.parametrize("ours", ["", "a"])
def test_code_that_is_not_known_is_no_cause(ours):
    assert not Writer("x", code=ours).has_other_code(Writer("y", code=""))
    assert Writer("x", code="a").has_other_code(Writer("y", code="b"))


def test_what_was_published_last_is_what_is_there():
    import polars as pl

    from tidemill.review.comparing.judging import KIND, TWICE

    live = Writer("live", (0, 100), "old", replaced=((10, 50), (40, 60)))
    first = Writer("first", (10, 50), "older", replaced=((40, 60),))
    last = Writer("last", (40, 60), "new")
    times = pl.DataFrame({"t": [5, 10, 39, 40, 59, 60]}, schema={"t": pl.Int64})
    rows = times.with_columns(pl.lit(0, pl.Int8).alias(KIND), pl.lit(False).alias(TWICE))
    for code, told in (("new", "ooo..o"), ("old", ".oooo."), ("older", "o..ooo")):
        known = Evidence(Writer("ours", None, code), (live, first, last))
        found = explain(rows, known)["cause"].to_list()
        assert "".join("o" if each == "other code" else "." for each in found) == told


def test_a_row_that_only_production_has_is_no_gap_of_production():
    import polars as pl

    from tidemill.review.comparing.judging import DIFFERENT, KIND, ONLY_HERE, ONLY_THERE, TWICE

    kinds = [DIFFERENT, ONLY_HERE, ONLY_THERE]
    rows = pl.DataFrame(
        {"t": [20] * 3, KIND: kinds, TWICE: [False] * 3},
        schema={"t": pl.Int64, KIND: pl.Int8, TWICE: pl.Boolean},
    )
    known = Evidence(Writer("ours"), (Writer("live", (0, 10)),))
    assert explain(rows, known)["cause"].to_list() == ["gap", "gap", "not explained"]


def test_a_run_of_a_log_alone_has_read_what_its_first_rows_need():
    """Input that was before its first moment: so far before, and as early as the skew allows."""
    made = make_manifest(
        run="live",
        mode="live",
        ends=False,
        output=(0, FOREVER_MICROS),
        boundaries=(100,),
        sources={"plays": make_pin("plays", lateness=20, skew=30)},
    )
    assert writer_of("live", None, {"live": made}, (5, 7), 1_000).covers == (135, 973)


def test_nothing_to_explain():
    import polars as pl

    from tidemill.review.comparing.judging import KIND, TWICE

    empty = pl.DataFrame(schema={KIND: pl.Int8, TWICE: pl.Boolean, "t": pl.Int64})
    assert explain(empty, Evidence()).columns == [KIND, TWICE, "t", "cause"]

import pytest

from tests.config.test_loader import load, refusal
from tidemill.config.places import table_key

STREAM = """\
  {name}:
    event_time: at
    archive: {{type: iceberg, table: {table}, ingest_time: seen{positions}}}
    {live}
"""
POSITIONS = ", partition: p, offset: o"


def stream(name, table="events.plays", topic=None, positions=POSITIONS):
    live = "lateness: 0"
    if topic is not None:
        live = f"live: {{type: kafka, brokers: 'a:1', topic: {topic}, schema: n long}}"
    return STREAM.format(name=name, table=table, live=live, positions=positions)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("events.plays", True),
        ("Events.PLAYS", True),
        ("events.`plays`", True),
        ('"events"."plays"', True),
        (" events . plays ", True),
        ("events.plays2", False),
        ("a.events.plays", False),
    ],
)
def test_a_table_is_known_however_it_is_written(written, same):
    assert (table_key(written) == table_key("events.plays")) is same


@pytest.mark.parametrize("table", ["events.plays", "events.Plays", "'events.`plays`'"])
def test_two_topics_cannot_be_archived_into_one_table(tmp_path, table):
    error = refusal(
        tmp_path, "streams:\n" + stream("eu", topic="eu") + stream("us", table, topic="us")
    )
    assert "'eu' and 'us' have different topics and one archive" in error.message
    assert error.facts["path"] == "streams.us.archive.table"
    assert "its own archive table" in error.fix


def test_it_is_enough_that_one_of_them_can_be_archived(tmp_path):
    other = stream("us", topic="us", positions="")
    assert refusal(tmp_path, "streams:\n" + stream("eu", topic="eu") + other)
    assert load(tmp_path, "streams:\n" + stream("eu", topic="eu", positions="") + other)


@pytest.mark.parametrize(
    "other",
    [
        stream("slow", topic="eu"),  # the same log, read in another way
        stream("history"),  # the table alone
        stream("us", "events.us", topic="us"),
    ],
)
def test_one_log_may_have_several_streams(tmp_path, other):
    assert load(tmp_path, "streams:\n" + stream("eu", topic="eu") + other)


def test_two_outputs_whose_tables_differ_in_case_are_one(tmp_path):
    text = "streams:\n" + stream("eu") + (
        "pipelines:\n  p:\n    entry: a:b\n    sinks:\n"
        "      one: {table: marts.out}\n      two: {table: marts.Out}\n"
    )  # fmt: skip
    assert "two outputs write the table 'marts.Out'" in refusal(tmp_path, text).message

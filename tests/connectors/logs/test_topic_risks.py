"""What a plan says of a topic's settings: whose clock stamps records, and what is removed."""

import pytest

from tests.manifests import change, make_pin
from tidemill.connectors.logs.contract import LogAway
from tidemill.connectors.logs.files.log import FeedLog
from tidemill.connectors.logs.kafka.log import TopicLog
from tidemill.errors import SourceError
from tidemill.planning.manifest import LivePin

PIN = make_pin("plays", live=LivePin("kafka", "t", 0, 1, 0))


class Topic:
    """A topic that tells its settings, or cannot."""

    def __init__(self, kind=None, policy=None, error=None):
        self.kind, self.policy, self.error = kind, policy, error

    def setting(self, name):
        if self.error is not None:
            raise self.error
        return {"message.timestamp.type": self.kind, "cleanup.policy": self.policy}[name]


def risks(pin=PIN, log=TopicLog, **settings):
    return list(log(pin, Topic(**settings)).risks("plays"))


def test_only_the_log_s_own_times_are_no_risk():
    assert risks(kind="LogAppendTime", policy="delete") == []
    assert risks(kind="CreateTime") == [
        "plays: the topic t has create time: producers' clocks decide the ingest time; a row that "
        "comes behind the frontier goes to late with the reason clock, and the run is no longer "
        "exact; to mend it for what comes from then on, give the topic "
        "message.timestamp.type=LogAppendTime"
    ]


@pytest.mark.parametrize("error", [None, LogAway("away"), SourceError("refused")])
def test_a_broker_that_does_not_say_it_is_told_of_and_stops_nothing(error):
    assert risks(error=error) == [
        "plays: the broker does not say whether the topic t has log-append time; with create time "
        "producers' clocks decide the ingest time; a row that comes behind the frontier goes to "
        "late with the reason clock, and the run is no longer exact"
    ]


@pytest.mark.parametrize(
    ("pin", "log", "said"),
    [
        (change(PIN, for_archive=True), TopicLog, "may take the row where a live run called it"),
        (PIN, FeedLog, "decide the order of requests"),
    ],
    ids=["archive", "feed"],
)
def test_create_time_weakens_each_reader_in_its_own_way(pin, log, said):
    (found,) = risks(pin, log, kind="CreateTime")
    assert said in found and "the run is no longer exact" in found


def test_compacted_topics_are_said():
    (found,) = risks(kind="LogAppendTime", policy="compact,delete")
    assert found.startswith("plays: the topic t is compacted (cleanup.policy=compact,delete)")

"""Positions are the log's own: everybody else has JSON, equal where positions are equal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.connectors.logs.files.home import FilesLive
from tidemill.connectors.logs.kafka.home import KafkaLive
from tidemill.connectors.logs.kafka.topic import TopicPositions
from tidemill.connectors.logs.tail.home import IcebergLive
from tidemill.planning.offsets import Offset

OFFSETS = st.dictionaries(st.integers(0, 200), st.integers(0, 2**62), max_size=12)


@given(OFFSETS, st.randoms())
def test_equal_positions_are_equal_texts(offsets, chance):
    pairs = list(offsets.items())
    chance.shuffle(pairs)
    texts = {
        json.dumps(Offset("plays", 7, TopicPositions(dict(each)).to_json()).to_json())
        for each in (pairs, sorted(pairs))
    }
    assert len(texts) == 1
    back = Offset.from_json(json.loads(texts.pop()))
    assert TopicPositions.from_json(back.positions) == TopicPositions(offsets)
    assert KafkaLive.offsets(back.positions) == offsets


def test_a_partition_that_is_not_named_is_read_from_its_first():
    begin = TopicPositions.from_json({"0": 5})
    assert (begin[0], begin[9]) == (5, 0)
    assert begin.left({0: 8, 9: 2}) == {"0": 3, "9": 2}
    assert TopicPositions.from_json(None) == TopicPositions()


def test_only_a_live_offset_has_positions():
    assert Offset("plays", 7).to_json() == {"source": "plays", "frontier": 7}
    assert not Offset("plays", 7).is_live and Offset("plays", 7, {}).is_live
    assert Offset("plays", 7, 12).to_json() == {"source": "plays", "frontier": 7, "positions": 12}


def test_a_lost_run_is_gone_on_with_where_its_stamp_says_if_the_log_is_not_the_archive():
    assert KafkaLive.recovered({"0": 4}) == {"0": 4} and KafkaLive.recovered(None) is None
    assert IcebergLive.recovered(12) is None  # what follows is in the same table


def test_only_logs_with_partitions_tell_offsets():
    for home in (FilesLive, IcebergLive):
        with pytest.raises(NotImplementedError, match="has no partitions"):
            home.offsets({"0": 1})

import json
from dataclasses import fields, is_dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.manifests import make_manifest, make_pin
from tidemill.config.pins import SinkPin
from tidemill.errors import RunError
from tidemill.planning.code.chains import FoldPin
from tidemill.planning.cuts import Cut
from tidemill.planning.manifest import (
    VERSION,
    ArchivePin,
    HistoryPhase,
    LivePin,
    Manifest,
    Outputs,
    RunIdentity,
    RunTimes,
    SourcePin,
    SourceRows,
    SourceTimes,
    next_boundary,
)
from tidemill.types import FOREVER, FOREVER_MICROS, from_micros

NAMES = st.text("abcdefä_", min_size=1, max_size=8)
MICROS = st.integers(0, 4_000_000_000_000_000)
BOUNDARIES = st.sets(MICROS, min_size=2, max_size=12).map(lambda found: tuple(sorted(found)))
FILES = st.builds(lambda p, n: {"path": p, "size": n, "mtime": n}, NAMES, st.integers(0))
ARCHIVES = st.builds(ArchivePin, facts=st.dictionaries(NAMES, st.lists(FILES, max_size=2)))
LEGS = st.builds(HistoryPhase, seam=MICROS, archive=st.none() | ARCHIVES)
TIMES = st.builds(SourceTimes, lateness=MICROS, skew=MICROS)
ROWS = st.builds(SourceRows, columns=st.lists(NAMES).map(tuple))
PINS = st.builds(
    SourcePin, archive=st.none() | ARCHIVES, times=TIMES, rows=ROWS, phase=st.none() | LEGS
)
SINKS = st.builds(
    SinkPin, key=st.lists(NAMES).map(tuple), own=st.dictionaries(NAMES, st.lists(NAMES))
)
MANIFESTS = st.builds(
    Manifest,
    identity=st.builds(RunIdentity, asked=st.dictionaries(NAMES, NAMES)),
    times=st.builds(RunTimes, output=st.tuples(MICROS, MICROS), boundaries=BOUNDARIES),
    sources=st.dictionaries(NAMES, PINS, max_size=2),
    outputs=st.builds(Outputs, sinks=st.dictionaries(NAMES, SINKS, max_size=2)),
    version=st.just(VERSION),
)
KEPT = make_manifest(
    sources={"plays": make_pin()},
    sinks={"output": SinkPin("iceberg", "marts.plays", "{}", key=("k",))},
    folds={"sessions": FoldPin(behind=3)},
    discard={"marts.plays": Cut({"plays": 5}, 4)},
    steps=({"plays": 5},),
)


@settings(max_examples=100)
@given(MANIFESTS)
def test_a_manifest_survives_being_written(made):
    text = made.to_json()
    again = Manifest.from_json(text)
    assert again == made
    assert again.to_json() == text


@given(BOUNDARIES)
def test_the_last_frontier_is_the_end_of_all(boundaries):
    made = make_manifest(boundaries=boundaries).times
    assert made.frontiers[:-1] == boundaries[:-1]
    assert from_micros(made.frontiers[-1]) == FOREVER
    assert all(low < high for low, high in pairwise(made.frontiers))


def test_times_carry_a_zone():
    made = make_manifest(output=(0, 1_000_000))
    assert str(made.times.range) == "[1970-01-01T00:00Z, 1970-01-01T00:00:01Z)"


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("{", "the manifest is damaged: ", ""),
        ("", "the manifest is damaged: ", ""),
        ("{}", "the manifest has version None, this Tidemill reads 2", "resume the run with"),
    ],
)
def test_what_is_not_a_manifest_is_refused(text, message, fix):
    with pytest.raises(RunError) as raised:
        Manifest.from_json(text)
    assert raised.value.message.startswith(message)
    assert fix in raised.value.fix


DAMAGES = [
    (("times", "output"), [0, "1"], 'times.output.1: "1" is not int'),
    (("times", "output"), [0], "times.output: [0] is not tuple"),
    (("times", "ends"), 1, "times.ends: 1 is not bool"),
    (("times", "rate"), True, "times.rate: true is not int"),
    (("times", "steps"), [{"plays": 1.5}], "times.steps.0.plays: 1.5 is not int"),
    (("times", "more"), 1, "times.more: there is no such field"),
    (("sources", "plays", "times"), {}, "sources.plays.times.event_time: it is missing"),
    (("sources", "plays", "rows"), [], "sources.plays.rows: [] is not SourceRows"),
    (("sources", "plays", "rows", "columns"), ["a", 1], "sources.plays.rows.columns.1: 1 is not s"),
    (("outputs", "sinks", "output", "key"), {}, "outputs.sinks.output.key: {} is not tuple"),
    (("outputs", "discard", "marts.plays", "x"), 1, "outputs.discard.marts.plays.x: there is no"),
    (("code", "folds", "sessions", "behind"), None, "code.folds.sessions.behind: null is not int"),
    (("identity", "run"), None, "identity.run: null is not str"),
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGES, ids=str)
def test_a_damaged_field_is_named(path, value, message):
    found = json.loads(KEPT.to_json())
    assert Manifest.from_json(json.dumps(found)) == KEPT
    part = found
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    with pytest.raises(RunError) as raised:
        Manifest.from_json(json.dumps(found))
    assert raised.value.message.startswith(f"the manifest is damaged: {message}")
    assert raised.value.fix == "restore it from a copy, or start a new backfill"


def test_another_version_is_refused():
    value = {**json.loads(KEPT.to_json()), "version": 3}
    with pytest.raises(RunError, match="the manifest has version 3, this Tidemill reads 2"):
        Manifest.from_json(json.dumps(value))


def test_the_parts_stay_small():
    for part in (
        Manifest,
        SourcePin,
        LivePin,
        *(type(getattr(KEPT, f.name)) for f in fields(KEPT)),
    ):
        assert not is_dataclass(part) or len(fields(part)) <= 9


class Sources:
    """Sources as Spark drives them: each asks for its next boundary in every batch."""

    def __init__(self, frontiers, count):
        self.frontiers = frontiers
        self.at = [frontiers[0]] * count
        self.taken = [[] for _ in range(count)]

    def step(self, released):
        for index, limit in enumerate(released):
            before = self.at[index]
            after = next_boundary(self.frontiers, before, limit)
            assert after in self.frontiers
            assert after == before or limit is None or after <= limit
            if after != before:
                self.taken[index].append((before, after))
            self.at[index] = after


COUNT = 3
FRONTIERS = BOUNDARIES.map(lambda found: (*found[:-1], FOREVER_MICROS))
# What is released to each source in each batch: all, nothing, or up to a share of the way.
SHARES = st.one_of(st.none(), st.integers(0, 13))
RELEASES = st.lists(st.tuples(*[SHARES] * COUNT), max_size=12)


def moment(frontiers, share):
    return frontiers[share] if share is not None and share < len(frontiers) else share


def sources_after(frontiers, releases):
    sources = Sources(frontiers, COUNT)
    for released in releases:
        sources.step([moment(frontiers, share) for share in released])
    return sources


@settings(max_examples=500)
@given(FRONTIERS, RELEASES)
def test_whatever_is_released_when_every_source_takes_every_slice_once(frontiers, releases):
    sources = sources_after(frontiers, releases)
    for _ in frontiers:
        sources.step([None] * COUNT)
    assert sources.at == [FOREVER_MICROS] * COUNT
    assert sources.taken == [list(pairwise(frontiers))] * COUNT


@settings(max_examples=500)
@given(FRONTIERS, RELEASES, st.integers(0, 11))
def test_sources_held_apart_realign_at_a_common_release(frontiers, releases, ahead):
    sources = sources_after(frontiers, releases)
    common = frontiers[min(frontiers.index(max(sources.at)) + ahead, len(frontiers) - 1)]
    for _ in frontiers:
        sources.step([common] * COUNT)
    assert sources.at == [common] * COUNT


@given(BOUNDARIES, st.data())
def test_nothing_is_taken_back(boundaries, data):
    frontier = data.draw(st.sampled_from(boundaries))
    released = data.draw(st.integers(0, frontier))
    assert next_boundary(boundaries, frontier, released) == frontier


def test_a_boundary_is_reached_only_when_all_of_its_slice_is_released():
    assert next_boundary((0, 10, 20), 0, 9) == 0
    assert next_boundary((0, 10, 20), 0, 10) == 10
    assert next_boundary((0, 10, 20), 0, 99) == 10
    assert next_boundary((0, 10, 20), 20, None) == 20

import json
from dataclasses import fields
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.config.pins import SinkPin
from tidemill.errors import RunError
from tidemill.planning.manifest import ArchivePin, HistoryPhase, Manifest, SourcePin, next_boundary
from tidemill.types import FOREVER, FOREVER_MICROS, from_micros

NAMES = st.text("abcdefä_", min_size=1, max_size=8)
MICROS = st.integers(0, 4_000_000_000_000_000)
BOUNDARIES = st.sets(MICROS, min_size=2, max_size=12).map(lambda found: tuple(sorted(found)))
FILES = st.builds(lambda p, n: {"path": p, "size": n, "mtime": n}, NAMES, st.integers(0))
ARCHIVES = st.builds(ArchivePin, facts=st.dictionaries(NAMES, st.lists(FILES, max_size=2)))
LEGS = st.builds(HistoryPhase, seam=MICROS, archive=st.none() | ARCHIVES)
PINS = st.builds(
    SourcePin,
    columns=st.lists(NAMES).map(tuple),
    archive=st.none() | ARCHIVES,
    phase=st.none() | LEGS,
    lateness=MICROS,
    skew=MICROS,
)
SINKS = st.builds(
    SinkPin, key=st.lists(NAMES).map(tuple), own=st.dictionaries(NAMES, st.lists(NAMES))
)
MANIFESTS = st.builds(
    Manifest,
    output=st.tuples(MICROS, MICROS),
    boundaries=BOUNDARIES,
    created=MICROS,
    sources=st.dictionaries(NAMES, PINS, max_size=2),
    sinks=st.dictionaries(NAMES, SINKS, max_size=2),
    version=st.just(1),
)


def manifest(**changes):
    values = {field.name: "x" for field in fields(Manifest) if field.name != "version"}
    numbers = {"created": 0, "output": (0, 1), "boundaries": (0, 1)}
    numbers |= {
        "sources": {},
        "sinks": {},
        "folds": {},
        "steps": (),
        "discard": {},
        "behaviour": (),
    }
    return Manifest(**{**values, **numbers, **changes})


@settings(max_examples=100)
@given(MANIFESTS)
def test_a_manifest_survives_being_written(made):
    text = made.to_json()
    again = Manifest.from_json(text)
    assert again == made
    assert again.to_json() == text


@given(BOUNDARIES)
def test_the_last_frontier_is_the_end_of_all(boundaries):
    made = manifest(boundaries=boundaries)
    assert made.frontiers[:-1] == boundaries[:-1]
    assert from_micros(made.frontiers[-1]) == FOREVER
    assert all(low < high for low, high in pairwise(made.frontiers))


def test_times_carry_a_zone():
    made = manifest(output=(0, 1_000_000), created=5_000_000)
    assert str(made.range) == "[1970-01-01T00:00Z, 1970-01-01T00:00:01Z)"
    assert made.created_at.isoformat() == "1970-01-01T00:00:05+00:00"


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("{", "the manifest is damaged: ", ""),
        ("", "the manifest is damaged: ", ""),
        ("{}", "the manifest has version None, this Tidemill reads 1", "resume the run with"),
    ],
)
def test_what_is_not_a_manifest_is_refused(text, message, fix):
    with pytest.raises(RunError) as raised:
        Manifest.from_json(text)
    assert raised.value.message.startswith(message)
    assert fix in raised.value.fix


def test_another_version_is_refused():
    value = {**json.loads(manifest().to_json()), "version": 2}
    with pytest.raises(RunError, match="the manifest has version 2, this Tidemill reads 1"):
        Manifest.from_json(json.dumps(value))


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

"""The steps are where the campaign thinks they are, and it is as large as it was meant to be."""

import functools
import importlib
from collections import Counter

import pytest

from tests.faults.campaign import all_combinations
from tests.faults.catalogs import NAMES
from tests.faults.steps import PLACES, STEPS, Fault, Mode


@pytest.mark.parametrize("place", PLACES)
def test_a_step_is_a_function_of_the_product(place):
    module, _, path = place.partition(":")
    assert callable(functools.reduce(getattr, path.split("."), importlib.import_module(module)))


def test_every_step_meets_faults_in_every_mode():
    made = all_combinations()
    assert len(made) >= 168
    assert {(c.step.name, c.mode) for c in made} == {(s.name, m) for s in STEPS for m in Mode}
    assert {(c.fault, c.mode) for c in made} == {(f, m) for f in Fault for m in Mode}
    assert len({(c.step.name, c.fault, c.mode) for c in made}) == len(made)


def test_catalogs_and_pipelines_take_turns():
    made = all_combinations()
    catalogs = Counter(combination.catalog for combination in made)
    assert set(catalogs) == set(NAMES)
    assert min(catalogs.values()) > len(made) / 4
    pipelines = Counter(combination.pipeline for combination in made)
    assert min(pipelines.values()) > len(made) / 4
    assert {c.shift for c in made if c.fault is Fault.CLOCK} == {-3_600, 3_600}

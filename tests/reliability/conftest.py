"""One project for all tests of this folder, and what it gives when nothing disturbs it."""

import pytest

from tests.reliability.scenario import RANGE, Tables, Yard


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Yard:
    return Yard.make(tmp_path_factory.mktemp("yard"))


@pytest.fixture(scope="session")
def undisturbed(yard: Yard) -> Tables:
    result = yard.run("backfill", "plays_per_show", *RANGE)
    return yard.tables(str(result["run"]))

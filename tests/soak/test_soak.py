"""The books of a short run: what may not grow does not. `make torture` keeps 500,000 batches."""

from pathlib import Path

import pytest

from tests.soak.bookkeeping import soak
from tests.soak.tenths import LIMIT, Growth, Tenths


@pytest.mark.slow
def test_files_and_queries_do_not_grow_with_the_batches(tmp_path: Path) -> None:
    found = soak(tmp_path, 1_000, commit_every=100).growth()
    assert found.files <= LIMIT
    assert found.queries <= LIMIT
    assert found.memory <= LIMIT


def test_growth_compares_the_first_tenth_with_the_last() -> None:
    tenths = Tenths(100)
    for batch in range(100):
        part = tenths.of(batch)
        part.seconds.append(0.1 + batch / 1000)
        part.queries += 4
        part.memory, part.files = 100, 50
    found = tenths.growth()
    assert found == Growth(pytest.approx(0.1945 / 0.1045), 1.0, 1.0, 1.0)
    assert not found.is_flat

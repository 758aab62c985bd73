"""The laws of folds take minutes: `make check` leaves them out."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/folds/" in item.path.as_posix() and getattr(
            getattr(item, "obj", None), "is_hypothesis_test", False
        ):
            item.add_marker(pytest.mark.slow)

"""What the tests of a whole archive share: one that is there, and others who write to it."""

import shutil

import pytest

from tests.archive.history import LOG, History


@pytest.fixture(scope="package")
def kept(tmp_path_factory):
    """An archive that no test changes."""
    folder = tmp_path_factory.mktemp("archive")
    History.make(folder / "now").follow(LOG, 6)
    (folder / "now").rename(folder / "kept")
    return folder


@pytest.fixture
def history(kept):
    """A copy of it at the very place where it was made: its metadata names files by their paths."""
    shutil.rmtree(kept / "now", ignore_errors=True)
    shutil.copytree(kept / "kept", kept / "now")
    return History(kept / "now")

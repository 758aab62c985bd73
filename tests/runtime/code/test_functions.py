"""Interceptors and callbacks are found where the YAML names them, or refused with the line."""

import sys

import pytest

from tidemill.config.loader import load_config
from tidemill.errors import ConfigError
from tidemill.runtime.code.loading import load_pipeline

YAML = """\
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
PROJECT
pipelines:
  shows:
    entry: shows_code:shows
    sources: {p: {stream: plays}}
    sinks: {output: {table: marts.shows}}
    OWN
"""
CODE = "def shows(p):\n    return p\n\ndef tag(place, name, frame):\n    return frame\n"
HOUSE = """
number = 5

def mask(place, name, frame):
    return frame

def narrow(frame):
    return frame

def many(*frames):
    return frames[-1]

def gate(commit):
    pass

def late(commit, more):
    pass
"""


@pytest.fixture(autouse=True)
def modules_stay_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def loaded(folder, project="", own="params: {}"):
    (folder / "shows_code.py").write_text(CODE)
    (folder / "house.py").write_text(HOUSE)
    path = folder / "tidemill.yaml"
    path.write_text(YAML.replace("PROJECT", project).replace("OWN", own))
    return load_config(path)


def test_the_projects_interceptors_come_first_and_each_is_called_once(tmp_path):
    config = loaded(tmp_path, "interceptors: house:mask",
                    "interceptors: [shows_code:tag, house:many, house:mask]")  # fmt: skip
    found = load_pipeline(config, "shows")
    assert [each.name for each in found.interceptors] == [
        *("house:mask", "shows_code:tag", "house:many")
    ]
    assert found.interceptors[1].function("source", "plays", "frame") == "frame"
    assert found.read_from == {"p": "plays"}


def test_a_module_of_interceptors_may_be_the_pipelines_own_and_both_stay_importable(tmp_path):
    config = loaded(tmp_path, "interceptors: [house:mask, shows_code:tag]")
    found = load_pipeline(config, "shows")
    assert found.function is sys.modules["shows_code"].shows
    assert found.interceptors[0].function is sys.modules["house"].mask
    assert found.interceptors[1].function is sys.modules["shows_code"].tag


def test_callbacks_are_those_of_the_pipeline(tmp_path):
    found = load_pipeline(loaded(tmp_path, own="after_commit: house:gate"), "shows")
    assert {key: each.name for key, each in found.callbacks.items()} == {
        "after_commit": "house:gate"
    }


@pytest.mark.parametrize(
    ("key", "entry", "message", "fix"),
    [
        ("interceptors", "nowhere:mask", "there is no module 'nowhere' in ", "write nowhere.py"),
        ("interceptors", "house:msk", "house.py has no 'msk'", "did you mean 'mask'?"),
        ("interceptors", "house:number", "house:number is not a function",
         "write def number(place, name, frame): …"),
        ("interceptors", "house:narrow", "house:narrow takes frame, and is called with place, "
         "name, frame", "write def narrow(place, name, frame): …"),
        ("before_commit", "house:late", "house:late takes commit, more, and is called with commit",
         "write def late(commit): …"),
        ("after_commit", "gone:late", "there is no module 'gone' in ", "write gone.py"),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_called_is_an_error_with_its_line(
    tmp_path, key, entry, message, fix
):
    with pytest.raises(ConfigError) as raised:
        load_pipeline(loaded(tmp_path, own=f"{key}: {entry}"), "shows")
    assert message in raised.value.message
    assert fix in raised.value.fix
    at = f"pipelines.shows.{key}" + (".0" if key == "interceptors" else "")
    assert raised.value.where == f"{tmp_path / 'tidemill.yaml'}:9 ({at})"


def test_what_is_no_name_of_a_function_is_refused_when_the_file_is_read(tmp_path):
    with pytest.raises(ConfigError, match="a function is written module:function, found 'mask'"):
        loaded(tmp_path, "interceptors: mask")

import sys

import pytest

from tidemill.config.loader import load_config
from tidemill.errors import ConfigError
from tidemill.runtime.code.loading import fingerprint, load_pipeline, sql_text

YAML = """
streams:
  plays: {{event_time: t, archive: {{type: iceberg, table: a.plays, ingest_time: t}}}}
  clicks: {{event_time: t, archive: {{type: iceberg, table: a.clicks, ingest_time: t}}}}
pipelines:
  shows:
    {code}
    sinks: {{output: {{table: marts.shows}}}}
"""
CODE = """
from tidemill import pipeline

@pipeline
def shows(plays):
    return {value!r}

def plain(clicks):
    return clicks

number = 5
"""
ONE = CODE.format(value="one")


@pytest.fixture(autouse=True)
def modules_stay_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def project(folder, code="entry: shows_code:shows", module=ONE):
    folder.mkdir(exist_ok=True)
    (folder / "tidemill.yaml").write_text(YAML.format(code=code))
    if module is not None:
        (folder / "shows_code.py").write_text(module)
    return load_config(folder / "tidemill.yaml")


def test_a_function_beside_the_yaml_is_found(tmp_path):
    found = load_pipeline(project(tmp_path), "shows")
    assert (found.name, found.streams) == ("shows", ("plays",))
    assert found("frame") == "one"


def test_a_plain_function_will_do(tmp_path):
    found = load_pipeline(project(tmp_path, "entry: shows_code:plain"), "shows")
    assert found.streams == ("clicks",)


@pytest.mark.parametrize(
    ("code", "module", "message", "fix"),
    [
        ("entry: nowhere:shows", None, "there is no module 'nowhere' in ", "write nowhere.py"),
        ("entry: shows_code:show", ONE, "shows_code.py has no 'show'", "did you mean 'shows'?"),
        ("entry: shows_code:number", ONE, "shows_code:number is not a function", "@pipeline"),
        ("entry: shows_code:shows", "import nowhere_x", "shows_code.py imports 'nowhere_x'",
         "install nowhere_x"),
        ("entry: shows_code:shows", "def shows(:", "shows_code.py:1: ", "correct the line"),
        ("entry: shows_code:shows", "def shows(play): ...",
         "is neither a stream nor in tables:, sources: or params:", "did you mean 'plays'?"),
        ("entry: shows_code:plain\n    sources: {plays: {}}", ONE,
         "sources: names plays, which the pipeline does not read", "it reads: clicks"),
        ("sql: select 1", None, "the SQL reads no stream", "allowed: clicks, plays"),
        ("sql: gone.sql", None, "gone.sql cannot be read: No such file", ""),
    ],
)  # fmt: skip
def test_code_that_cannot_be_used(tmp_path, code, module, message, fix):
    loaded = project(tmp_path, code, module)
    with pytest.raises(ConfigError) as raised:
        load_pipeline(loaded, "shows")
    assert message in raised.value.message
    assert fix in raised.value.fix
    assert str(tmp_path) in raised.value.where


def test_sql_reads_the_streams_it_names(tmp_path):
    (tmp_path / "shows.sql").write_text("select * from plays -- not clicks_by_day\n;")
    found = load_pipeline(project(tmp_path, "sql: shows.sql", None), "shows")
    assert (found.name, found.streams) == ("shows", ("plays",))
    assert sql_text(tmp_path, "select 1") == "select 1"


def test_sources_say_what_sql_reads(tmp_path):
    code = "sql: select * from p\n    sources: {p: {stream: plays}}"
    assert load_pipeline(project(tmp_path, code, None), "shows").streams == ("p",)


def test_the_name_of_an_analysis_changes_with_the_facts_and_not_with_files(tmp_path):
    loaded = project(tmp_path)
    first = fingerprint(loaded, "shows", ["facts"])
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/part.py").write_text("x = 1")
    assert fingerprint(loaded, "shows", ["facts"]) == first
    assert fingerprint(loaded, "shows", ["other facts"]) != first


def test_the_fingerprint_of_sql_is_its_text(tmp_path):
    (tmp_path / "shows.sql").write_text("select * from plays")
    loaded = project(tmp_path, "sql: shows.sql", None)
    first = fingerprint(loaded, "shows", [])
    (tmp_path / "shows.sql").write_text("select t from plays")
    assert fingerprint(loaded, "shows", []) != first


def test_code_that_was_edited_is_loaded_anew(tmp_path):
    loaded = project(tmp_path)
    assert load_pipeline(loaded, "shows")("frame") == "one"
    (tmp_path / "shows_code.py").write_text(CODE.format(value="another"))
    assert load_pipeline(loaded, "shows")("frame") == "another"


def test_projects_in_one_process_keep_to_their_own_code(tmp_path):
    one = project(tmp_path / "one", module=ONE)
    two = project(tmp_path / "two", module=CODE.format(value="two"))
    assert [load_pipeline(p, "shows")("frame") for p in (one, two, one)] == ["one", "two", "one"]


def test_modules_of_one_project_are_not_taken_for_another_s(tmp_path):
    code = "from part import value\ndef shows(plays):\n    return value\n"
    found = []
    for name in ("one", "two"):
        loaded = project(tmp_path / name, module=code)
        (tmp_path / name / "part.py").write_text(f"value = {name!r}")
        found.append(load_pipeline(loaded, "shows")("frame"))
    assert found == ["one", "two"]

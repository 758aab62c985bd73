"""Arguments of a pipeline become streams or parameters; every mistake names what and where."""

import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.manifests import make_manifest
from tidemill.config.loader import load_config
from tidemill.errors import ConfigError, RunError
from tidemill.planning.code.params import Param, Written
from tidemill.runtime.code.binding import GivenParams, require_same_params
from tidemill.runtime.code.loading import load_pipeline
from tidemill.runtime.plans.planner import code_fingerprint

YAML = """\
streams:
  plays: {event_time: t, archive: {type: iceberg, table: a.plays, ingest_time: t}}
  limit: {event_time: t, archive: {type: iceberg, table: a.limit, ingest_time: t}}
pipelines:
  shows:
    CODE
    params: {PARAMS}
    sinks: {output: {table: marts.shows}}
"""
HEAD = """\
from __future__ import annotations
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Optional
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

"""
PLACE = "shows() (binding_code.py:8)"


@pytest.fixture(autouse=True)
def modules_stay_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def project(folder, arguments, params="", code="entry: binding_code:shows"):
    (folder / "binding_code.py").write_text(f"{HEAD}def shows({arguments}):\n    return plays\n")
    text = YAML.replace("CODE", code).replace("PARAMS", params)
    (folder / "tidemill.yaml").write_text(text)
    return load_config(folder / "tidemill.yaml")


def bound(loaded, **asked):
    return load_pipeline(loaded, "shows", GivenParams(loaded, "shows", asked))


def test_arguments_are_streams_or_parameters_of_their_annotated_types(tmp_path):
    arguments = (
        "plays: DataFrame, campaign: str, least: float, cents: Decimal, since: datetime, "
        "gap: timedelta, note: str | None, days: Optional[int] = 3"
    )
    params = (
        "campaign: vip, least: 3, cents: '1.50', since: 2026-01-01T00:00:00Z, gap: 10 min, "
        "note: null"
    )
    found = bound(project(tmp_path, arguments, params))
    assert found.streams == ("plays",)
    assert found.params == {
        "campaign": "vip",
        "least": 3.0,
        "cents": Decimal("1.50"),
        "since": datetime(2026, 1, 1, tzinfo=UTC),
        "gap": timedelta(minutes=10),
        "note": None,
        "days": 3,
    }
    assert type(found.params["least"]) is float


def test_the_command_comes_before_the_yaml_and_the_default(tmp_path):
    loaded = project(tmp_path, "plays, campaign: str, least: float = 1.5, most=9", "campaign: vip")
    assert bound(loaded).params == {"campaign": "vip", "least": 1.5, "most": 9}
    asked = {"campaign": Written("2026"), "least": Written("2"), "most": Written("7")}
    assert bound(loaded, **asked).params == {"campaign": "2026", "least": 2.0, "most": 7}


def test_without_a_type_in_the_code_the_yaml_s_value_tells_it(tmp_path):
    loaded = project(tmp_path, "plays, least, name", "least: 3.5, name: '7'")
    assert bound(loaded).params == {"least": 3.5, "name": "7"}
    found = bound(loaded, least=Written("4"), name=Written("8")).params
    assert found == {"least": 4.0, "name": "8"}
    assert type(found["least"]) is float


def test_a_default_that_no_parameter_can_be_stays_the_function_s_own(tmp_path):
    assert bound(project(tmp_path, "plays, keys=('a', 'b')")).params == {}


@pytest.mark.parametrize(
    ("arguments", "params", "asked", "told"),
    [
        ("plays, least: float", "least: cheap", {}, (":7 (pipelines.shows.params.least)",
         f"the argument 'least' of {PLACE}: 'cheap' is not a float", "write a finite number")),
        ("plays, least: float", "least: 3.5", {"least": Written("cheap")}, ("--param least=cheap",
         f"the argument 'least' of {PLACE}: 'cheap' is not a float", "write a finite number")),
        ("plays, least=3.5", "least: cheap", {}, (":7 (pipelines.shows.params.least)",
         "'cheap' is not a float", "write a finite number")),
        ("plays, name: str", "name: 2026-01-01", {}, (":7 (pipelines.shows.params.name)",
         "2026-01-01 is not a str", "put it in quotes")),
        ("plays, name: str", "name: null", {}, (":7 (pipelines.shows.params.name)",
         "null is not a str", "give a value, or let its default be None")),
        ("plays, campaign: str", "campain: vip", {}, (":7 (pipelines.shows.params.campain)",
         f"the code takes no parameter 'campain': {PLACE}", "did you mean 'campaign'?")),
        ("plays", "", {"campaign": Written("a")}, ("--param campaign=a",
         f"the code takes no parameter 'campaign': {PLACE}", "takes no parameters; leave it out")),
        ("plays, campaign: str", "", {}, (":5 (pipelines.shows)",
         f"the argument 'campaign' of {PLACE} has no value",
         "add params: {campaign: …} to the pipeline, or give --param campaign=…")),
        ("play", "", {}, (":5 (pipelines.shows)",
         f"the argument 'play' of {PLACE} is neither a stream nor in tables:, sources: or params:",
         "did you mean 'plays'?")),
        ("plays", "", {"limit": Written("5")}, ("--param limit=5",
         "'limit' is the name of a stream and of a parameter", "another name")),
        ("plays, limit: int", "", {}, (":5 (pipelines.shows)",
         f"the argument 'limit' of {PLACE} is annotated as int and has the name of a stream",
         "rename it, or the stream")),
        ("plays, keys: list[str]", "keys: a", {}, (":7 (pipelines.shows.params.keys)",
         f"the argument 'keys' of {PLACE} takes a list, which no parameter can be",
         "annotate it with one of str, int, float")),
        ("plays, since=datetime(2026, 1, 1)", "", {}, (":5 (pipelines.shows)",
         "'2026-01-01T00:00:00' has no zone", "Z for UTC")),
        ("campaign='x'", "", {}, (" (pipelines.shows)", "the code reads no stream", "an argument")),
    ],
)  # fmt: skip
def test_mistakes(tmp_path, arguments, params, asked, told):
    where, message, fix = told
    loaded = project(tmp_path, arguments, params)
    with pytest.raises(ConfigError) as raised:
        bound(loaded, **asked)
    assert message in raised.value.message
    assert fix in raised.value.fix
    expected = where if where.startswith("--") else f"{tmp_path / 'tidemill.yaml'}{where}"
    assert raised.value.where == expected


@pytest.mark.parametrize(
    ("params", "message", "fix"),
    [
        ("plays: 5", "'plays' is the name of a stream and of a parameter", "another name"),
        ("a-b: 5", "'a-b' cannot be an argument's name", "use a_b"),
        ("a: [1]", "a list cannot be a parameter's value", "write a text, a number"),
        ("a: {b: 1}", "a mapping cannot be a parameter's value", "write a text, a number"),
        ("a: '${HOME}'", "what comes from the environment may be a secret", '--param a="$NAME"'),
        ("a: '${GONE:-x}'", "what comes from the environment may be a secret", "--param a="),
    ],
)
def test_mistakes_that_the_file_alone_shows(tmp_path, params, message, fix):
    with pytest.raises(ConfigError) as raised:
        project(tmp_path, "plays", params)
    assert message in raised.value.message
    assert fix in raised.value.fix
    assert f"tidemill.yaml:7 (pipelines.shows.params.{params.split(':')[0]})" in raised.value.where


SQL = """sql: |
      select *, ':no' as a, a::string as b -- :nor
      from plays where c = :campaign and d > :least"""


def test_the_markers_of_sql_are_its_parameters(tmp_path):
    loaded = project(tmp_path, "plays", "campaign: vip, least: 3.5", SQL)
    found = bound(loaded, least=Written("4"))
    assert found.streams == ("plays",)
    assert found.params == {"campaign": "vip", "least": 4.0}


@pytest.mark.parametrize(
    ("params", "message", "fix"),
    [
        ("campaign: vip", "the marker ':least' of the SQL (line 2) has no value",
         "add params: {least: …}"),
        ("campaign: vip, least: 1, leest: 2", "the code takes no parameter 'leest'",
         "did you mean 'least'?"),
    ],
)  # fmt: skip
def test_mistakes_in_sql(tmp_path, params, message, fix):
    loaded = project(tmp_path, "plays", params, SQL)
    with pytest.raises(ConfigError) as raised:
        bound(loaded)
    assert message in raised.value.message
    assert fix in raised.value.fix


def test_a_run_has_the_values_of_its_manifest_whatever_the_yaml_says(tmp_path):
    loaded = project(tmp_path, "plays, campaign: str, least: float = 1.5", "campaign: spring")
    pinned = {"campaign": Param("str", "vip"), "least": Param("float", 2.5)}
    found = load_pipeline(loaded, "shows", GivenParams(loaded, "shows", pinned=pinned))
    assert found.params == {"campaign": "vip", "least": 2.5}
    renamed = project(tmp_path, "plays, limit: int = 1")  # the stream has got this name since
    pinned = {"limit": Param("int", 5)}
    found = load_pipeline(renamed, "shows", GivenParams(renamed, "shows", pinned=pinned))
    assert (found.streams, found.params) == (("plays",), {"limit": 5})
    gone = {"season": Param("str", "vip")}
    with pytest.raises(ConfigError, match="the code takes no parameter 'season'") as raised:
        load_pipeline(loaded, "shows", GivenParams(loaded, "shows", pinned=gone))
    assert raised.value.where == "the run's manifest (code.params.season)"
    assert "restore the code" in raised.value.fix


def test_a_run_goes_on_with_no_other_values():
    pinned = {"campaign": Param("str", "vip"), "least": Param("Decimal", "3.50")}
    manifest = make_manifest(params=pinned)
    require_same_params(manifest, {})
    require_same_params(manifest, {"campaign": Written("vip"), "least": Written("3.5")})
    for asked, message, fix in (
        ({"campaign": Written("spring")}, "planned with campaign=vip, not with spring", "leave"),
        ({"least": Written("cheap")}, "planned with least=3.50, not with cheap", "leave"),
        ({"campain": "vip"}, "the run has no parameter 'campain'", "did you mean 'campaign'?"),
    ):
        with pytest.raises(RunError, match=message) as raised:
            require_same_params(manifest, asked)
        assert fix in raised.value.fix


def test_other_values_are_other_code_to_the_cache(tmp_path):
    loaded = project(tmp_path, "plays, n: int", "n: 1")
    names = {
        code_fingerprint(loaded, "shows", GivenParams(loaded, "shows", asked))
        for asked in ({}, {"n": 1}, {"n": 2}, {"n": Written("2")})
    }
    assert len(names) == 3
    assert code_fingerprint(loaded, "shows") in names


def with_instances(folder, arguments, section=True, head="from tidemill import Instances\n"):
    loaded = project(folder, arguments)
    code = folder / "binding_code.py"
    first, rest = code.read_text().split("\n", 1)  # the first line is for the future
    code.write_text(f"{first}\n{head}{rest}")
    if section:
        line = "    instances: {table: ops.i, id: i, from: f, to: t}\n    sinks:"
        path = folder / "tidemill.yaml"
        path.write_text(path.read_text().replace("    sinks:", line))
        loaded = load_config(path)
    return loaded


def test_the_argument_annotated_with_instances_gets_them(tmp_path):
    found = bound(with_instances(tmp_path, "plays: DataFrame, offers: Instances, n: int = 3"))
    assert (found.streams, found.instances, found.params) == (("plays",), "offers", {"n": 3})
    assert bound(project(tmp_path, "plays")).instances is None


@pytest.mark.parametrize(
    ("arguments", "section", "words"),
    [
        ("plays, offers: Instances", False, "gets instances, and the pipeline has none"),
        ("plays", True, "the pipeline has instances:, and no argument of its code gets them"),
        ("plays, a: Instances, b: Instances", True, "gets instances, and so does 'a'"),
        ("plays, limit: Instances", True, "has the name of a stream"),
    ],
)
def test_instances_that_cannot_be_bound_are_refused(tmp_path, arguments, section, words):
    with pytest.raises(ConfigError) as refused:
        bound(with_instances(tmp_path, arguments, section))
    assert words in refused.value.message and refused.value.fix


def test_an_annotation_that_only_a_type_checker_sees_is_explained(tmp_path):
    hidden = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tidemill import Instances\n"
    )
    with pytest.raises(ConfigError) as refused:
        bound(with_instances(tmp_path, "plays, offers: Instances", head=hidden))
    assert "not under TYPE_CHECKING" in refused.value.fix

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tidemill.config.catalog import CatalogConfig
from tidemill.config.loader import LoadedConfig, load_config
from tidemill.errors import ConfigError

GOOD = """\
catalog:
  uri: sqlite:///lake/catalog.db
  warehouse: lake/warehouse
spark:
  master: local[2]
  conf: {spark.sql.shuffle.partitions: 4}
streams:
  plays:
    event_time: started_at
    lateness: 10 min
    skew: 1.5 s
    zone: Europe/Berlin
    archive:
      type: iceberg
      table: archive.plays
      ingest_time: ingested_at
  ads:
    event_time: seen_at
    archive: {type: parquet, path: ads, ingest_time: at, region: country}
    live: {type: kafka, brokers: 'localhost:9092', topic: ads, schema: a int}
pipelines:
  shows:
    entry: shows:shows
    max_misalignment: 30 min
    sources:
      plays: {order: position}
      clicks: {stream: ads, lateness: PT1H}
    sinks:
      output:
        table: marts.shows
        time: window_start
        key: show_id
"""


def load(folder: Path, text: str) -> LoadedConfig:
    path = folder / "tidemill.yaml"
    path.write_text(text, "utf-8")
    return load_config(path)


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        load(folder, text)
    return raised.value


def test_a_whole_file(tmp_path):
    loaded = load(tmp_path, GOOD)
    config = loaded.config
    assert config.streams["plays"].lateness == timedelta(minutes=10)
    assert config.streams["plays"].skew == timedelta(milliseconds=1_500)
    assert config.streams["ads"].skew == timedelta()
    assert config.streams["ads"].archive.region == "country"
    assert config.streams["ads"].live.schema_ == "a int"
    shows = config.pipelines["shows"]
    assert shows.max_misalignment == timedelta(minutes=30)
    assert shows.sources["clicks"].lateness == timedelta(hours=1)
    assert shows.sources["plays"].order == "position"
    assert shows.sinks["output"].key == ["show_id"]
    assert shows.sinks["output"].partition_by == "day"
    assert loaded.base == tmp_path
    assert loaded.home == tmp_path / ".tidemill"


def test_a_loaded_file_cannot_be_changed(tmp_path):
    config = load(tmp_path, GOOD).config
    with pytest.raises(ValueError, match="frozen"):
        config.home = "elsewhere"


def test_what_is_loaded_can_be_written_and_loaded_again(tmp_path):
    config = load(tmp_path, GOOD).config
    assert type(config).model_validate(config.model_dump(mode="json", by_alias=True)) == config


# What is wrong: (old text, new text), the line, the YAML path, the message, what to do next.
WRONG = {
    "unknown section": (
        ("catalog:", "catalogue:"),
        (1, "catalogue", "unknown key 'catalogue'", "did you mean 'catalog'?"),
    ),
    "unknown section without a near one": (
        ("spark:\n", "zzz:\n"),
        (4, "zzz", "unknown key 'zzz'", "allowed: catalog, home, interceptors, keep_snapshots"),
    ),
    "unknown key of spark": (
        ("master:", "mastr:"),
        (5, "spark.mastr", "unknown key 'mastr'", "did you mean 'master'?"),
    ),
    "unknown key of a stream": (
        ("    lateness:", "    latenes:"),
        (10, "streams.plays.latenes", "unknown key 'latenes'", "did you mean 'lateness'?"),
    ),
    "unknown key of an archive": (
        ("region: country", "regoin: country"),
        (19, "streams.ads.archive.regoin", "unknown key 'regoin'", "did you mean 'region'?"),
    ),
    "a key of the other kind of archive": (
        ("      table: archive.plays", "      table: archive.plays\n      path: plays"),
        (
            16,
            "streams.plays.archive.path",
            "unknown key 'path'",
            "allowed: ingest_time, offset, partition, region, table, type",
        ),
    ),
    "unknown key of a live topic": (
        ("schema: a int", "shema: a int"),
        (20, "streams.ads.live.shema", "unknown key 'shema'", "did you mean 'schema'?"),
    ),
    "unknown key of a pipeline": (
        ("max_misalignment", "max_missalignment"),
        (
            24,
            "pipelines.shows.max_missalignment",
            "unknown key 'max_missalignment'",
            "did you mean 'max_misalignment'?",
        ),
    ),
    "unknown key of a source": (
        ("order: position", "ordre: position"),
        (
            26,
            "pipelines.shows.sources.plays.ordre",
            "unknown key 'ordre'",
            "did you mean 'order'?",
        ),
    ),
    "unknown key of a sink": (
        ("        time:", "        tiem:"),
        (31, "pipelines.shows.sinks.output.tiem", "unknown key 'tiem'", "did you mean 'time'?"),
    ),
    "unknown kind of archive": (
        ("type: iceberg", "type: icberg"),
        (13, "streams.plays.archive", "unknown type 'icberg'", "did you mean 'iceberg'?"),
    ),
    "an archive without a kind": (
        ("type: parquet, ", ""),
        (19, "streams.ads.archive", "the key 'type' is missing", "delta, iceberg, parquet"),
    ),
    "a missing key": (
        ("    event_time: started_at\n", ""),
        (8, "streams.plays", "the key 'event_time' is missing", ""),
    ),
    "a missing key of an archive": (
        (", ingest_time: at", ""),
        (19, "streams.ads.archive", "the key 'ingest_time' is missing", ""),
    ),
    "a number without its unit": (
        ("10 min", "10"),
        (10, "streams.plays.lateness", "10 is not a duration", "a number needs its unit"),
    ),
    "half a millisecond": (
        ("1.5 s", "1.5 ms"),
        (
            11,
            "streams.plays.skew",
            "the duration '1.5 ms' is not a whole, non-negative number of milliseconds",
            "write for example '10 min', '1h', '250 ms' or 'PT15M'",
        ),
    ),
    "a duration of a source": (
        ("PT1H", "1 hou"),
        (27, "pipelines.shows.sources.clicks.lateness", "'1 hou' is not a duration", "'10 min'"),
    ),
    "no such zone": (
        ("Europe/Berlin", "Europe/Bärlin"),
        (
            12,
            "streams.plays.zone",
            "'Europe/Bärlin' is not a time zone",
            "did you mean 'Europe/Berlin'?",
        ),
    ),
    "an order that does not exist": (
        ("order: position", "order: offset"),
        (
            26,
            "pipelines.shows.sources.plays.order",
            "input should be 'any' or 'position', found 'offset'",
            "",
        ),
    ),
    "a list where a name belongs": (
        ("table: marts.shows", "table: [marts, shows]"),
        (30, "pipelines.shows.sinks.output.table", "input should be a valid string", ""),
    ),
    "text where a section belongs": (
        ("spark:\n  master: local[2]\n  conf: {spark.sql.shuffle.partitions: 4}", "spark: local"),
        (4, "spark", "input should be a valid dictionary or instance of SparkConfig, found", ""),
    ),
    "a name that is no string in a list": (
        ("    max_misalignment: 30 min", "    allow:\n      - first\n      - {last: 1}"),
        (26, "pipelines.shows.allow.1", "input should be a valid string", ""),
    ),
    "code and SQL": (
        ("    entry: shows:shows", "    entry: shows:shows\n    sql: select 1"),
        (22, "pipelines.shows", "a pipeline has either entry: or sql:, found both", ""),
    ),
    "neither code nor SQL": (
        ("    entry: shows:shows\n", ""),
        (22, "pipelines.shows", "a pipeline has either entry: or sql:, found neither", ""),
    ),
    "an entry without a function": (
        ("shows:shows", "shows"),
        (22, "pipelines.shows", "entry is written module:function, found 'shows'", ""),
    ),
    "an undefined stream": (
        ("stream: ads", "stream: adds"),
        (
            27,
            "pipelines.shows.sources.clicks",
            "the stream 'adds' is not defined",
            "did you mean 'ads'?",
        ),
    ),
    "a source named after no stream": (
        ("      plays: {order", "      plain: {order"),
        (
            26,
            "pipelines.shows.sources.plain",
            "the stream 'plain' is not defined",
            "did you mean 'plays'?",
        ),
    ),
    "a table without a namespace": (
        ("marts.shows", "shows"),
        (
            30,
            "pipelines.shows.sinks.output.table",
            "'shows' has no namespace",
            "write namespace.table, for example marts.shows",
        ),
    ),
    "a table with half a namespace": (
        ("marts.shows", "'.shows'"),
        (
            30,
            "pipelines.shows.sinks.output.table",
            "'.shows' has no namespace",
            "write namespace.table, for example marts.shows",
        ),
    ),
    "two outputs into one table": (
        ("      output:\n", "      other: {table: marts.shows}\n      output:\n"),
        (
            28,
            "pipelines.shows.sinks",
            "two outputs write the table 'marts.shows'",
            "give each its own",
        ),
    ),
    "a stream that cannot be an argument": (
        ("  ads:\n", "  ad-s:\n    event_time: t\n    archive: {type: iceberg, table: a.b, "
         "ingest_time: t}\n  ads:\n"),
        (17, "streams.ad-s", "'ad-s' cannot be an argument's name", "use a_b instead of a-b"),
    ),
    "a stream that is nowhere": (
        ("  ads:\n", "  noise: {event_time: t}\n  ads:\n"),
        (17, "streams.noise", "the stream has neither archive: nor live:", "give it one"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "expected"), WRONG.values(), ids=list(WRONG))
def test_a_mistake_is_named_with_its_line_and_what_to_do(tmp_path, edit, expected):
    old, new = edit
    line, path, message, fix = expected
    assert GOOD.count(old) == 1, "the edit must be unique"
    error = refusal(tmp_path, GOOD.replace(old, new))
    assert error.where == f"{tmp_path / 'tidemill.yaml'}:{line} ({path})"
    assert error.facts == {"path": path}
    assert error.message.startswith(message)
    assert error.message.count("\n") == 0
    assert fix in error.fix if fix else not error.fix


def line_of(error: ConfigError) -> int:
    return int(error.where.rsplit(":", 1)[1])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the key 'streams' is missing"),
        ("- a\n- b\n", 1, "the file must be a mapping with streams: and pipelines:"),
        ("streams:\n\ta: 1\n", 2, "not valid YAML: found character '\\t' that cannot start"),
        ("streams:\n  a: [1\n", 3, "not valid YAML: expected ',' or ']'"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML: but found another document"),
        ("a: 1\nhome: x\na: 2\n", 3, "the key 'a' is given twice"),
        ("streams:\n  b:\n    c: 1\n    c: 2\n", 4, "the key 'c' is given twice"),
        ("streams:\n  - {c: 1}\n  - {d: 1,\n     d: 1}\n", 4, "the key 'd' is given twice"),
    ],
)
def test_what_is_not_a_project_file_at_all(tmp_path, text, line, message):
    error = refusal(tmp_path, text)
    assert line_of(error) == line
    assert error.message.startswith(message)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "tidemill.yaml")
    assert raised.value.message == f"there is no tidemill.yaml in {tmp_path}"
    assert "tidemill init" in raised.value.fix


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "tidemill.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "tidemill.yaml")


def test_environment_variables_are_put_in_and_stay_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_USER", "anna")
    monkeypatch.setenv("LAKE_PASSWORD", "annabel")
    monkeypatch.setenv("SHORT", "x")
    text = GOOD.replace(
        "uri: sqlite:///lake/catalog.db",
        "uri: postgresql://${LAKE_USER}:${LAKE_PASSWORD}@db/${SHORT}\n  list: ['${LAKE_USER}']",
    )
    loaded = load(tmp_path, text)
    assert loaded.config.catalog.uri == "postgresql://anna:annabel@db/x"
    assert loaded.secrets == {"anna", "annabel"}
    shown = loaded.redact("cannot log in as anna with annabel at box x")
    assert shown == "cannot log in as *** with *** at box x"


def test_a_variable_that_is_not_set_is_named_with_its_place(tmp_path, monkeypatch):
    monkeypatch.delenv("LAKE", raising=False)
    error = refusal(tmp_path, GOOD.replace("sqlite:///lake/catalog.db", "sqlite:///${LAKE}"))
    assert error.where.endswith(":2 (catalog.uri)")
    assert error.message == "the environment variable LAKE is not set"
    assert error.fix == "export LAKE=…"


def test_a_variable_may_have_a_default_which_is_no_secret(tmp_path, monkeypatch):
    text = GOOD.replace("sqlite:///lake/catalog.db", "sqlite:///${LAKE:-lake/catalog.db}")
    monkeypatch.delenv("LAKE", raising=False)
    loaded = load(tmp_path, text)
    assert loaded.config.catalog.uri == "sqlite:///lake/catalog.db"
    assert loaded.secrets == frozenset()
    monkeypatch.setenv("LAKE", "deep")
    assert load(tmp_path, text).config.catalog.uri == "sqlite:///deep"


def test_text_that_only_looks_like_a_variable_is_kept(tmp_path):
    text = GOOD.replace("warehouse: lake/warehouse", "warehouse: 'lake/$HOME/${}'")
    assert load(tmp_path, text).config.catalog.warehouse == "lake/$HOME/${}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10 min", "${SECRET}"),
        ("Europe/Berlin", "${SECRET}"),
        ("max_misalignment: 30 min", "allow: ${SECRET}"),
        ("stream: ads", "stream: '${SECRET}'"),
    ],
)
def test_a_mistake_does_not_show_a_secret(tmp_path, monkeypatch, old, new):
    monkeypatch.setenv("SECRET", "hunter2")
    error = refusal(tmp_path, GOOD.replace(old, new))
    assert "hunter2" not in error.text()
    assert "***" in error.text()


def test_paths_of_a_local_catalog_are_relative_to_the_yaml(tmp_path):
    catalog = load(
        tmp_path, GOOD.replace("catalog:\n", "catalog:\n  s3.region: eu\n")
    ).config.catalog
    assert catalog.properties(tmp_path) == {
        "uri": f"sqlite:///{tmp_path}/lake/catalog.db",
        "warehouse": f"file://{tmp_path}/lake/warehouse",
        "s3.region": "eu",
    }
    assert catalog.local_folders(tmp_path) == [tmp_path / "lake", tmp_path / "lake/warehouse"]


def test_a_remote_catalog_stays_as_it_is(tmp_path):
    catalog = CatalogConfig(uri="https://lake", warehouse="s3://lake/w", token=5)
    assert catalog.properties(tmp_path) == {
        "uri": "https://lake",
        "warehouse": "s3://lake/w",
        "token": "5",
    }
    assert catalog.local_folders(tmp_path) == []


def test_redaction_without_secrets_changes_nothing(tmp_path):
    assert replace(load(tmp_path, GOOD), secrets=frozenset()).redact("as it is") == "as it is"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("catalog:\n  uri: !env LAKE\n", 2),
        ("spark: {}\nhome: 2026-13-45\n", 2),
        ("? [a, b]\n: c\n", 1),
        ("spark:\n  conf: {a: !!bool x}\n", 2),
    ],
    ids=["a tag", "a date that does not exist", "a key that is a list", "no boolean"],
)
def test_yaml_that_cannot_be_built_is_refused_with_its_line(tmp_path, text, line):
    error = refusal(tmp_path, text)
    assert line_of(error) == line
    assert error.message.startswith("not valid YAML: ")


@pytest.mark.parametrize(
    ("old", "new", "path", "near"),
    [
        ("event_time: started_at", "event_tim: a", "streams.plays.event_tim", "event_time"),
        ("table: marts.shows", "tabel: a.b", "pipelines.shows.sinks.output.tabel", "table"),
        ("ingest_time: ingested_at", "ingest: a", "streams.plays.archive.ingest", "ingest_time"),
    ],
)
def test_a_misspelt_required_key_is_called_unknown_not_missing(tmp_path, old, new, path, near):
    error = refusal(tmp_path, GOOD.replace(old, new))
    assert error.facts == {"path": path}
    assert error.fix == f"did you mean {near!r}?"


@pytest.mark.parametrize("name", ["iceberg", "archive", "live"])
def test_a_stream_may_have_any_name(tmp_path, name):
    text = GOOD.replace("  plays:\n", f"  {name}:\n").replace("    lateness:", "    latenes:")
    error = refusal(tmp_path, text)
    assert error.where.endswith(f":10 (streams.{name}.latenes)")
    assert error.fix == "did you mean 'lateness'?"


def test_the_path_of_a_setting_that_is_no_value(tmp_path):
    error = refusal(tmp_path, GOOD.replace("partitions: 4", "partitions: [4]"))
    assert error.facts == {"path": "spark.conf.spark.sql.shuffle.partitions"}


def test_yaml_that_holds_itself_is_refused(tmp_path):
    assert "an anchor holds itself" in refusal(tmp_path, "home: &a [*a]\n").message


def test_the_path_of_a_name_that_is_no_text(tmp_path):
    error = refusal(tmp_path, GOOD.replace("  ads:\n", "  5:\n"))
    assert error.facts == {"path": "streams.5"}


@pytest.mark.parametrize("folder", ["my project", "50%", "a#b", "a%20b?"])
def test_a_local_catalog_in_any_folder(tmp_path, folder):
    catalog = load_catalog("any", **_made(CatalogConfig(), tmp_path / folder))
    catalog.create_namespace("marts")
    rows = pa.table({"id": [1, 2]})
    catalog.create_table("marts.shows", rows.schema).append(rows)
    assert catalog.load_table("marts.shows").scan().to_arrow() == rows
    catalog.close()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def _made(catalog: CatalogConfig, base: Path) -> dict[str, str]:
    for needed in catalog.local_folders(base):
        needed.mkdir(parents=True, exist_ok=True)
    return catalog.properties(base)


def test_slices_cannot_be_of_no_width(tmp_path):
    error = refusal(tmp_path, GOOD.replace("30 min", "0"))
    assert error.facts == {"path": "pipelines.shows.max_misalignment"}

"""Projects that are wrong as written: YAML, the environment, names of columns, where code is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bad_input.shop import RANGE, YAML, Shop, events, table, untouched
from tests.bad_input.terminal import run_cli

pytestmark = pytest.mark.usefixtures("no_java")
ARCHIVE = YAML[YAML.index("    archive:") : YAML.index("pipelines:")]

# What is edited, the line and YAML path where there is one, the rest of the message.
YAMLS = {
    "an unknown key": (
        ("lateness: 10 min", "latenes: 10 min"),
        ":4 (streams.plays.latenes): unknown key 'latenes'\n  fix: did you mean 'lateness'?",
    ),
    "a number without its unit": (
        ("lateness: 10 min", "lateness: 10"),
        ":4 (streams.plays.lateness): 10 is not a duration\n"
        "  fix: write for example '10 min', '1h', '250 ms' or 'PT15M'; a number needs its unit",
    ),
    "a list where a name belongs": (
        ("event_time: event_ts", "event_time: [event_ts]"),
        ":3 (streams.plays.event_time): input should be a valid string",
    ),
    "a name that YAML takes for a truth": (
        ("offset: seq", "offset: off"),
        ":10 (streams.plays.archive.offset): input should be a valid string, found False\n"
        "  fix: put it in quotes: YAML reads on, off, yes, no and numbers as what they look like",
    ),
    "an unknown stream": (
        ("    sinks:", "    sources: {play: {order: position}}\n    sinks:"),
        ":14 (pipelines.sums.sources.play): the stream 'play' is not defined\n"
        "  fix: did you mean 'plays'?",
    ),
    "an archive without a namespace": (
        ("logs.plays", "plays"),
        ":7 (streams.plays.archive.table): 'plays' has no namespace\n"
        "  fix: write namespace.table, for example marts.plays",
    ),
    "not YAML": (
        ("  plays:\n", "  plays: [\n"),
        ":4: not valid YAML: expected ',' or ']', but got ':'",
    ),
    "a variable that is not set": (
        ("streams:", "home: ${NOT_SET_ANYWHERE}\nstreams:"),
        ":1 (home): the environment variable NOT_SET_ANYWHERE is not set\n"
        "  fix: export NOT_SET_ANYWHERE=…",
    ),
    "a variable in braces without quotes": (
        ("streams:", "catalog: {uri: ${CATALOG:-x}/lake}\nstreams:"),
        ":1: not valid YAML: expected ',' or '}', but got '{'\n"
        '  fix: put the variable in quotes: "${CATALOG:-x}/lake"',
    ),
    "a zone that is spelled wrong": (
        ("lateness: 10 min", "zone: Europe/Berln"),
        ":4 (streams.plays.zone): 'Europe/Berln' is not a time zone\n"
        "  fix: did you mean 'Europe/Berlin'?",
    ),
    "a city as the zone": (
        ("lateness: 10 min", "zone: berlin"),
        ":4 (streams.plays.zone): 'berlin' is not a time zone\n"
        "  fix: did you mean 'Europe/Berlin'?",
    ),
    "an offset as the zone": (
        ("lateness: 10 min", "zone: UTC+2"),
        ":4 (streams.plays.zone): 'UTC+2' is not a time zone\n"
        "  fix: write Etc/GMT-2 (its sign is turned round), or a place",
    ),
    "a zone that there is not": (
        ("lateness: 10 min", "zone: Middle-earth"),
        ":4 (streams.plays.zone): 'Middle-earth' is not a time zone\n"
        "  fix: write for example UTC or Europe/Berlin",
    ),
    "a master that is spelled wrong": (
        ('"local[2]"', '"locl[2]"'),
        ":17 (spark.master): 'locl[2]' is not a Spark master\n  fix: did you mean 'local[2]'?",
    ),
    "a master without its bracket": (
        ('"local[2]"', '"local[2"'),
        ":17 (spark.master): 'local[2' is not a Spark master\n  fix: did you mean 'local[2]'?",
    ),
    "a master that there is not": (
        ('"local[2]"', "mesos://host"),
        ":17 (spark.master): 'mesos://host' is not a Spark master\n"
        "  fix: allowed: k8s://https://host:443, local, local[*], local[2], spark://host:7077, "
        "yarn",
    ),
}


@pytest.mark.parametrize(("edit", "text"), YAMLS.values(), ids=list(YAMLS))
def test_a_file_that_is_wrong(shop: Shop, edit, text):
    with untouched(shop):
        wrong = shop.variant(edit)
        wrong.plan().refuses(f"{wrong.path}{text}")


COLUMNS = {
    "event_time": (
        ("event_time: event_ts", "event_time: event_tz"),
        "event_time names the column 'event_tz', which logs.plays does not have\n"
        "  fix: did you mean 'event_ts'?",
    ),
    "ingest_time": (
        ("ingest_time: ingest_ts", "ingest_time: ingested_ts"),
        "archive.ingest_time names the column 'ingested_ts', which logs.plays does not have\n"
        "  fix: did you mean 'ingest_ts'?",
    ),
    "offset": (
        ("offset: seq", "offset: position"),
        "archive.offset names the column 'position', which logs.plays does not have\n"
        "  fix: allowed: amount, country, event_ts, ingest_ts, key, part, seq",
    ),
    "region": (
        ("offset: seq", "offset: seq\n      region: county"),
        "archive.region names the column 'county', which logs.plays does not have\n"
        "  fix: did you mean 'country'?",
    ),
    "an event time of another type": (
        ("event_time: event_ts", "event_time: amount"),
        "event_time 'amount' is long, not a timestamp\n  fix: name a timestamp column",
    ),
    "an ingest time of another type": (
        ("ingest_time: ingest_ts", "ingest_time: key"),
        "archive.ingest_time 'key' is long, not a timestamp\n  fix: name a timestamp column",
    ),
    "a stream without an archive": (
        (ARCHIVE, "    live: {type: kafka, brokers: 'localhost:9092', topic: plays}\n"),
        "the stream has no archive:, so it has no history to backfill from\n"
        "  fix: give it an archive: in the YAML",
    ),
}


@pytest.mark.parametrize(("edit", "text"), COLUMNS.values(), ids=list(COLUMNS))
def test_a_stream_that_does_not_fit_its_archive(shop: Shop, edit, text):
    with untouched(shop):
        shop.variant(edit).plan().refuses(f"stream plays: {text}")


CODE = {
    "no module": (
        "pipeline:sums",
        "there is no module 'pipeline' in FOLDER\n  fix: write pipeline.py beside the YAML",
    ),
    "no package": (
        "jobs.plays:sums",
        "there is no module 'jobs.plays' in FOLDER\n  fix: write jobs/plays.py beside the YAML",
    ),
    "no function": (
        "pipelines:sum",
        "pipelines.py has no 'sum'\n  fix: did you mean 'sums'?",
    ),
    "no pipeline": (
        "pipelines:F",
        "pipelines:F is not a function\n  fix: write @pipeline above it",
    ),
    "a syntax error": (
        "broken:sums",
        "FOLDER/broken.py:2: invalid syntax\n  fix: correct the line",
    ),
    "a package that is not installed": (
        "needy:sums",
        "needy.py imports 'no_such_package', which is not installed\n"
        "  fix: install no_such_package into the environment Tidemill runs in",
    ),
    "an import that fails": (
        "failing:sums",
        "failing.py cannot be imported: KeyError: 'EUR' (failing.py:2)\n"
        "  fix: a module of pipelines only defines them; --verbose shows the trace",
    ),
    "an import that leaves": (
        "leaving:sums",
        "leaving.py cannot be imported: SystemExit: 3 (leaving.py:2)\n"
        "  fix: a module of pipelines only defines them; --verbose shows the trace",
    ),
}
MODULES = {
    "broken": "def sums(plays):\n    return plays.(\n",
    "needy": "import no_such_package\n",
    "failing": "rates = {}\nRATE = rates['EUR']\n",
    "typed": "from pyspark.sql import functions as F\n@F.udf('string')\ndef up(v):\n    return v\n",
    "leaving": "import sys\nsys.exit(3)\n",
    "stranger": "def views(views):\n    return views\n",
    "priced": "def sums(plays, least: float, country: str = 'DE'):\n    return plays\n",
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop.make(tmp_path_factory.mktemp("workshop"))
    for name, text in MODULES.items():
        (made.folder / f"{name}.py").write_text(text, "utf-8")
    return made


@pytest.mark.parametrize(("entry", "text"), CODE.values(), ids=list(CODE))
def test_code_that_cannot_be_loaded(workshop: Shop, entry, text):
    with untouched(workshop):
        wrong = workshop.variant(("pipelines:sums", entry))
        text = text.replace("FOLDER", str(workshop.folder))
        wrong.plan().refuses(f"{wrong.path} (pipelines.sums): {text}")


def test_a_type_as_a_text_for_which_spark_is_asked(workshop: Shop):
    """In a process of its own: where another test has left a session, the import succeeds."""
    wrong = workshop.variant(("pipelines:sums", "typed:sums"))
    command = [sys.executable, "-m", "tidemill.cli", "plan", "sums", *RANGE]
    done = subprocess.run(
        [*command, "--config", str(wrong.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {wrong.path} (pipelines.sums): typed.py cannot be imported: PySparkRuntimeError: "
        "[SESSION_OR_CONTEXT_NOT_EXISTS] SparkContext or SparkSession should be created first. "
        "(typed.py:2)\n"
        "  fix: there is no Spark session while a module is imported: give a type as an object, "
        '@F.udf(StringType()) instead of @F.udf("string"), and use columns only inside of '
        "functions\n"
    )


# The entry with its params:, options of the command, and all that is said of them.
PARAMS = {
    "an unknown stream": (
        "stranger:views",
        (),
        "YAML:12 (pipelines.sums): the argument 'views' of views() (stranger.py:1) is neither a "
        "stream nor in tables:, sources: or params:\n  fix: allowed: plays",
    ),
    "no value": (
        "priced:sums",
        (),
        "YAML:12 (pipelines.sums): the argument 'least' of sums() (priced.py:1) has no value\n"
        "  fix: add params: {least: …} to the pipeline, or give --param least=…",
    ),
    "a value of another type": (
        "priced:sums\n    params: {least: cheap}",
        (),
        "YAML:14 (pipelines.sums.params.least): the argument 'least' of sums() (priced.py:1): "
        "'cheap' is not a float\n  fix: write a finite number without quotes: 3.5",
    ),
    "a value of another type in the command": (
        "priced:sums\n    params: {least: 3.5}",
        ("--param", "least=cheap"),
        "--param least=cheap: the argument 'least' of sums() (priced.py:1): 'cheap' is not a "
        "float\n  fix: write a finite number without quotes: 3.5",
    ),
    "an unknown name": (
        "priced:sums\n    params: {leest: 3.5}",
        (),
        "YAML:14 (pipelines.sums.params.leest): the code takes no parameter 'leest': sums() "
        "(priced.py:1)\n  fix: did you mean 'least'?",
    ),
    "a stream's name": (
        "priced:sums\n    params: {least: 3.5}",
        ("--param", "plays=1"),
        "--param plays=1: 'plays' is the name of a stream and of a parameter\n"
        "  fix: give the parameter another name",
    ),
    "a variable": (
        "priced:sums\n    params: {least: '${LEAST:-3}'}",
        (),
        "YAML:14 (pipelines.sums.params.least): a parameter is kept in the manifest and shown, "
        "and what comes from the environment may be a secret\n"
        '  fix: give it with the command: --param least="$NAME"',
    ),
}


@pytest.mark.parametrize(("entry", "options", "text"), PARAMS.values(), ids=list(PARAMS))
def test_parameters_that_do_not_fit_the_code(workshop: Shop, entry, options, text):
    with untouched(workshop):
        wrong = workshop.variant(("pipelines:sums", entry))
        wrong.plan(*RANGE, *options).refuses(text.replace("YAML", str(wrong.path)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--param", "least"), "'least' is not NAME=VALUE: write --param campaign=spring"),
        (("--param", "a=1", "--param", "a=2"), "'a' is given twice"),
    ],
)
def test_a_parameter_that_is_no_name_with_a_value(workshop: Shop, options, text):
    workshop.plan(*RANGE, *options).misused(f"Invalid value for '--param': {text}")


def test_sql_that_is_missing(workshop: Shop):
    missing = workshop.folder / "missing.sql"
    with untouched(workshop):
        workshop.variant(("entry: pipelines:sums", "sql: missing.sql")).plan().refuses(
            f"{missing}: missing.sql cannot be read: No such file or directory"
        )


def test_java_is_missing(workshop: Shop):
    workshop.fill("logs.plays", table(events(2)))
    with untouched(workshop):
        workshop.plan().refuses(
            "no Java found in JAVA_HOME /nowhere/java\n"
            "  fix: install Java 17 or newer (Debian and Ubuntu: apt-get install "
            "openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME",
            code=1,
        )


CATALOGS = {
    "a folder that cannot be made": (
        "{warehouse: tidemill.yaml/lake}",
        "catalog: the folder FOLDER/tidemill.yaml/lake cannot be made: Not a directory\n"
        "  fix: give write permission, or set catalog.warehouse and catalog.uri elsewhere",
    ),
    "an unknown kind": (
        "{uri: 'nonsense://lake'}",
        "catalog nonsense://lake: the catalog cannot be opened: Could not infer the catalog type "
        "from the uri: nonsense://lake\n  fix: check catalog: in the YAML; 'tidemill doctor' "
        "tries it",
    ),
}


@pytest.mark.parametrize(("catalog", "text"), CATALOGS.values(), ids=list(CATALOGS))
def test_a_catalog_that_cannot_be_opened(shop: Shop, catalog, text):
    with untouched(shop):
        shop.variant(("streams:", f"catalog: {catalog}\nstreams:")).plan().refuses(
            text.replace("FOLDER", str(shop.folder))
        )


def test_a_table_that_the_catalog_has_under_another_name(shop: Shop):
    """The name is part of a SQL catalog's key: the tables seem to be gone."""
    renamed = "catalog: {name: prod}\nstreams:"
    with untouched(shop):
        shop.variant(("streams:", renamed)).plan().refuses(
            "stream plays: the table 'logs.plays' does not exist\n"
            "  fix: the same SQL catalog has it under the name 'tidemill': write catalog: {name: "
            "tidemill, …}; a SQL catalog keeps the tables of each name apart, and this one was "
            "opened as 'prod'",
            code=1,
        )


def test_a_folder_of_files_is_not_followed_live(shop: Shop):
    edit = ("type: iceberg\n      table: logs.plays", "type: parquet\n      path: far")
    tail = (edit[0], f"{edit[1]}\n    live: {{type: iceberg}}\n    #")
    rest = ("      ingest_time: ingest_ts\n      partition: part\n      offset: seq\n", "")
    with untouched(shop):
        shop.variant(edit).cli("run", "sums").refuses(
            "stream plays: the stream has no live: home, and the growing end of its archive (type "
            "parquet) cannot be followed\n"
            "  fix: give it live: {type: kafka, …} or {type: files, …}, or an Iceberg archive, "
            "whose tail is read (docs/live.md)"
        )
        inside = ("path: far", "path: far\n      ingest_time: ingest_ts")
        shop.variant(tail, rest).variant(inside).cli("run", "sums").refuses(
            "stream plays: the stream has an archive of type parquet, and only the growing end of "
            "an Iceberg table can be followed live\n"
            "  fix: give it archive: {type: iceberg, table: …, ingest_time: …}, or a live: of type "
            "kafka or files (docs/live.md); 'tidemill backfill' reads any archive"
        )


RISKS = {
    "two pipelines into one table": (
        ("spark:", "  more:\n    entry: pipelines:sums\n"
                   "    sinks: {output: {table: Marts.sums, time: t}}\nspark:"),
        "the table 'marts.sums' is written by more, too: live runs and --into would mix the rows "
        "of both, and nobody could tell them apart; give each pipeline its own",
    ),
    "a zone for times that have one": (
        ("    event_time: event_ts\n", "    event_time: event_ts\n    zone: Europe/Berlin\n"),
        "plays: zone: Europe/Berlin has no effect, because event_ts (timestamptz) carries its own "
        "zone; leave zone: out, or correct the times where they are written",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "text"), RISKS.values(), ids=list(RISKS))
def test_what_a_plan_warns_of(shop: Shop, edit, text):
    with untouched(shop):
        found = shop.variant(edit).plan()
    assert found.code == 0, found.err
    assert f"  • {text}\n" in found.out
    assert f"  • {text}\n" not in shop.plan().out


def test_a_home_that_cannot_be_made(shop: Shop):
    """What only looks says so; what would write is tried in test_runs."""
    with untouched(shop):
        shop.variant(("streams:", "home: tidemill.yaml/home\nstreams:")).cli("runs").refuses(
            f"{shop.folder}/tidemill.yaml/home/registry.db: the run registry cannot be opened or "
            "written: Not a directory\n  fix: check the folder's permissions and free space, move "
            "a damaged file away, or set home: in the YAML",
            code=1,
        )


def test_a_setting_of_spark_that_is_no_number(shop: Shop):
    wrong = shop.variant(('"local[2]"}', '"local[2]", conf: {spark.sql.shuffle.partitions: many}}'))
    with untouched(shop):
        wrong.backfill().refuses(
            "spark.conf.spark.sql.shuffle.partitions is 'many', not a number\n"
            "  fix: write for example 8"
        )


def test_a_registry_that_is_damaged(tmp_path: Path):
    shop = Shop.make(tmp_path)
    shop.project.loaded.home.mkdir()
    (shop.project.loaded.home / "registry.db").write_text(
        "not a database, and long enough", "utf-8"
    )
    for command in (["runs"], ["status", "x"], ["resume", "x"]):
        shop.cli(*command).refuses(
            f"{tmp_path}/.tidemill/registry.db: the run registry cannot be opened or written: "
            "file is not a database\n  fix: check the folder's permissions and free space, move a "
            "damaged file away, or set home: in the YAML",
            code=1,
        )


def test_init_does_not_overwrite_a_project(shop: Shop):
    with untouched(shop):
        found = run_cli("init", cwd=shop.folder)
    assert found.code == 2
    assert found.err == (
        f"error: {shop.folder}: there is a tidemill.yaml already\n"
        "  fix: run 'tidemill init' in an empty folder, or 'tidemill init FOLDER'\n"
    )
    assert shop.path.read_text("utf-8") == YAML

"""How fast commands and processes start, held by what they import: no clock, no noise."""

import json
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.bad_input.shop import RANGE, SCHEMA, YAML, Shop, events, table
from tidemill.reading.options import SourceOptions

TAKES_LONG = ("pandas", "pyarrow.dataset", "pyiceberg.io.pyarrow", "pyspark", "py4j", "polars")
PLAN = f"""
import sys
from tidemill.cli.main import cli
cli({["plan", "sums", *RANGE, "--json"]!r} + sys.argv[1:], standalone_mode=False)
"""


def loaded_by(code: str, *arguments: str, cwd: Path) -> tuple[str, list[str]]:
    """What the code prints in a new process, and which of the slow modules it loaded."""
    code += f"\nprint([name for name in {TAKES_LONG!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "JAVA_HOME": "/nowhere/java"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, literal_eval(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop.make(tmp_path_factory.mktemp("tables"))
    made.fill("logs.plays", table(events()), files=2)  # an hour each: their footers are read
    return made.know()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("files")
    text = YAML.replace("type: iceberg", "type: parquet").replace("table: logs.plays", "path: log")
    made = Shop.make(folder, text)
    (folder / "log").mkdir()
    pq.write_table(table(events()), folder / "log" / "a.parquet")
    return made.know(columns=SCHEMA)


@pytest.mark.parametrize("options", [(), ("--where", "country = 'DE'")])
def test_a_plan_of_known_code_over_tables_loads_little(tables: Shop, options: tuple[str, ...]):
    out, found = loaded_by(PLAN, *options, cwd=tables.folder)
    assert json.loads(out)["pipeline"] == "sums"
    assert found == []


def test_a_plan_of_known_code_over_files_loads_little(files: Shop):
    out, found = loaded_by(PLAN, cwd=files.folder)
    assert json.loads(out)["pipeline"] == "sums"
    assert found == []


@pytest.mark.parametrize("shop", ["tables", "files"])
def test_the_process_that_plans_batches_loads_little(request: pytest.FixtureRequest, shop: str):
    """Spark starts one for every stream. It opens the archive and cuts slices, and reads no row."""
    project = request.getfixturevalue(shop).project
    manifest = project.prepare(project.plan("sums", RANGE[1], RANGE[3]))
    folder = project.loaded.home / "runs" / manifest.run
    catalog = project.config.catalog.properties(project.loaded.base)
    options = SourceOptions(folder, "plays", catalog).to_spark()
    code = (
        "import pickle, sys\nfrom tidemill.reading.slicing import Slicing\n"
        "from tidemill.planning.offsets import Offset\n"
        f"ends = [Offset('plays', at) for at in {manifest.times.boundaries[:2]}]\n"
        "from tidemill.reading.options import SourceOptions\n"
        f"tasks = Slicing(SourceOptions.from_spark({options!r})).tasks(*ends)\n"
        "print(len(tasks), len(pickle.dumps(tasks)) > 0)"
    )
    out, found = loaded_by(code, cwd=project.loaded.base)
    assert out.split()[1] == "True"
    assert int(out.split()[0]) > 0
    assert found == []


@pytest.mark.parametrize("command", [["plan", "--help"], ["runs"]])
def test_commands_that_only_tell_load_little(tables: Shop, command: list[str]):
    code = "import sys\nfrom tidemill.cli.main import cli\ncli(sys.argv[1:], standalone_mode=False)"
    assert loaded_by(code, *command, cwd=tables.folder)[1] == []
